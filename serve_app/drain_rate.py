"""How fast the service answers at present, and so when a full queue will have room again."""

import math
import time
from collections import deque
from collections.abc import Callable

LEAST_WAIT_S = 1
_WINDOW_S = 10.0
"""Chosen: long enough for a few runs of the longest texts, short enough to follow a burst."""
_BIN_S = 0.25
"""Answers of so many seconds are kept as one number."""


class DrainRate:
    """Counts answered texts of the last seconds; used from one event loop."""

    def __init__(self, *, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing answered.

        Args:
            most_s: the longest wait that is ever told.
            clock: monotonic seconds.
        """
        self.most_s = most_s
        self._clock = clock
        self._bins: deque[list[float]] = deque()  # [begin, texts], oldest first
        self._busy_since_s = 0.0

    def note_busy(self) -> None:
        """Say that the first text came to an empty service; idle time says nothing of its speed."""
        self._busy_since_s = self._clock()
        self._bins.clear()

    def note_answered(self, num_texts: int) -> None:
        """Count texts that the model has answered."""
        now = self._clock()
        if self._bins and now - self._bins[-1][0] < _BIN_S:
            self._bins[-1][1] += num_texts
        else:
            self._forget(now)
            self._bins.append([now, float(num_texts)])

    def seconds_for(self, num_texts: int) -> int:
        """Return the whole seconds that so many texts need, at least 1 and at most ``most_s``.

        At the rate of the last 10 s, or since the service was idle if that is less. As long as
        nothing is answered, what it has taken so far is the best guess.

        Example: 200 texts in hand and 500 answered in the last 10 s -> 4.
        """
        now = self._clock()
        self._forget(now)
        answered = sum(count for _, count in self._bins)
        elapsed_s = min(_WINDOW_S, now - self._busy_since_s)
        needed_s = num_texts * elapsed_s / answered if answered else elapsed_s
        return max(LEAST_WAIT_S, math.ceil(min(needed_s, self.most_s)))

    def _forget(self, now: float) -> None:
        while self._bins and now - self._bins[0][0] > _WINDOW_S:
            self._bins.popleft()
