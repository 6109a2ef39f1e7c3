"""Times in classes of 1 %: order statistics of any number of samples in bounded memory.

As DDSketch (Masson, Rim and Lee, VLDB 2019), whose quantiles are within a stated relative error.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

_LOG_BASE = math.log(1.01)
_LEAST_MS = 0.01
_MOST_MS = 3_600_000.0


@dataclass(kw_only=True)
class TimeHistogram:
    """How many samples lie in each class; at most 1,960 classes."""

    num_samples: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    """Class → samples; the class i holds [1.01^i, 1.01^(i+1)) ms."""

    def add(self, times_ms: Iterable[float]) -> None:
        """Count times; those under 0.01 ms or over an hour are in the first or last class."""
        for time_ms in times_ms:
            clipped = min(max(time_ms, _LEAST_MS), _MOST_MS)
            index = math.floor(math.log(clipped) / _LOG_BASE)
            self.counts[index] = self.counts.get(index, 0) + 1
            self.num_samples += 1

    def bounds_of_rank(self, rank: int) -> tuple[float, float]:
        """Return between which times the sample of a rank lies.

        Args:
            rank: from 1, the shortest time. Below it is 0 and over ``num_samples`` infinite.
        """
        if rank < 1:
            return 0.0, 0.0
        passed = 0
        for index in sorted(self.counts):
            passed += self.counts[index]
            if passed >= rank:
                return math.exp(index * _LOG_BASE), math.exp((index + 1) * _LOG_BASE)
        return math.inf, math.inf

    def quantile(self, share: float) -> float | None:
        """Return a quantile to within 0.5 %; None without samples."""
        if not self.num_samples:
            return None
        rank = max(1, math.ceil(share * self.num_samples))
        low, high = self.bounds_of_rank(rank)
        return math.sqrt(low * high)
