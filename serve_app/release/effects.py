"""How much worse the candidate is, as intervals that hold at every look: shares and quantiles."""

from dataclasses import dataclass

import numpy as np

from serve_app.release.always_valid import EVEN, Mixture, rank_bounds, share_bounds
from serve_app.release.time_histogram import TimeHistogram


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Chances of being wrong in one check and step, over all its looks."""

    fail: float
    """That the candidate is called worse than it is."""
    passing: float
    """That it is called better than it is."""

    def per_arm(self) -> list[float]:
        """Return both, halved: two intervals that may each miss make one statement."""
        return [self.fail / 2, self.passing / 2]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Hits in trials."""

    hits: int
    trials: int

    @property
    def share(self) -> float | None:
        """None without trials."""
        return self.hits / self.trials if self.trials else None


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An estimate and its two intervals."""

    estimate: float | None
    low: float
    """At ``Levels.fail``."""
    high: float
    pass_high: float
    """At ``Levels.passing``, so nearer."""


def share_effect(sample: Sample, *, levels: Levels, mixture: Mixture = EVEN) -> Effect:
    """Return a share's interval."""
    alphas = [levels.fail, levels.passing]
    low, high = share_bounds(sample.hits, sample.trials, alpha=alphas, mixture=mixture)
    return Effect(
        estimate=sample.share, low=float(low[0]), high=float(high[0]), pass_high=float(high[1])
    )


def rise_effect(
    candidate: Sample, stable: Sample, *, levels: Levels, mixture: Mixture = EVEN
) -> Effect:
    """Return the interval of the candidate's share less the stable one's.

    Each share has its own exact interval, so the split between the two may be anything and may
    change; a normal approximation of the difference would be wrong for a handful of errors.
    """
    hits = np.array([[candidate.hits], [stable.hits]])
    trials = np.array([[candidate.trials], [stable.trials]])
    low, high = share_bounds(hits, trials, alpha=[levels.per_arm()], mixture=mixture)
    shares = candidate.share, stable.share
    return Effect(
        estimate=None if None in shares else (shares[0] or 0.0) - (shares[1] or 0.0),
        low=float(low[0, 0] - high[1, 0]),
        high=float(high[0, 0] - low[1, 0]),
        pass_high=float(high[0, 1] - low[1, 1]),
    )


def quantile_ratio_effect(
    candidate: TimeHistogram, stable: TimeHistogram, *, share: float, levels: Levels
) -> Effect:
    """Return the interval of the candidate's quantile by the stable one's."""
    trials = np.array([[candidate.num_samples], [stable.num_samples]])
    least, most = rank_bounds(trials, share=share, alpha=[levels.per_arm()])
    lows = [
        [times.bounds_of_rank(int(rank))[0] for rank in ranks]
        for times, ranks in zip((candidate, stable), least, strict=True)
    ]
    highs = [
        [times.bounds_of_rank(int(rank) + 1)[1] for rank in ranks]
        for times, ranks in zip((candidate, stable), most, strict=True)
    ]
    points = candidate.quantile(share), stable.quantile(share)
    return Effect(
        estimate=points[0] / points[1] if points[0] and points[1] else None,
        low=_ratio(lows[0][0], highs[1][0]),
        high=_ratio(highs[0][0], lows[1][0]),
        pass_high=_ratio(highs[0][1], lows[1][1]),
    )


def _ratio(upper: float, lower: float) -> float:
    if np.isinf(upper) or lower == 0.0:
        return float("inf") if not np.isinf(lower) else 0.0
    return 0.0 if np.isinf(lower) else upper / lower
