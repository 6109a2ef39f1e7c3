"""Confidence sequences for shares: intervals that hold at every look at once.

The checks look each second for days. A test made for one look, such as Fisher's at p < 0.05,
would then roll back identical candidates far too often. Here the chance that the truth is ever
outside, at any of infinitely many looks, is at most alpha.

For a share p and a Beta(a, b) mixture the likelihood ratio of k hits in n,

    M(p) = B(a + k, b + n - k) / B(a, b) / (p^k (1 - p)^(n - k)),

is a martingale of mean 1 if p is the truth, so by Ville's inequality it ever reaches 1 / alpha
with a chance of at most alpha: {p: M(p) < 1 / alpha} is the confidence sequence. It is exact, for
any sample size and any p. Robbins, "Statistical methods related to the law of the iterated
logarithm", Ann. Math. Stat. 41 (1970); Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform,
nonparametric, nonasymptotic confidence sequences", Ann. Stat. 49 (2021); Lindon and Malek,
"Anytime-valid inference for multinomial count data", NeurIPS (2022).
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
_STIRLING_SHIFT = 8
_ROUNDS = 44
"""Halvings of [0, 1]: to 6e-14."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Where a share is looked for first; any is valid, a good guess needs fewer samples."""

    hits: float
    """a of Beta(a, b)."""
    misses: float
    """b of Beta(a, b)."""


EVEN = Mixture(hits=0.5, misses=0.5)
"""Any share: Jeffreys' prior, within a constant of the best for every p (Krichevsky, Trofimov)."""
RARE = Mixture(hits=0.5, misses=20.0)
"""Shares of some percent and less, such as errors."""
HALF = Mixture(hits=20.0, misses=20.0)
"""Shares near one half, such as who of two was slower."""


def log_gamma(x: ArrayLike) -> FloatArray:
    """Return ln Γ(x) for x > 0, elementwise, to about 1e-13 (numpy has none)."""
    values = np.asarray(x, dtype=np.float64)
    is_small = values < _STIRLING_SHIFT
    if not np.any(is_small):
        return _stirling(values)
    # Γ(x) = Γ(x + 8) / (x (x + 1) … (x + 7)), and Stirling's series is exact enough from 8 on.
    product = np.ones_like(values)
    for step in range(_STIRLING_SHIFT):
        product = product * np.where(is_small, values + step, 1.0)
    large = np.where(is_small, values + _STIRLING_SHIFT, values)
    return np.asarray(_stirling(large) - np.log(product))


def _stirling(x: FloatArray) -> FloatArray:
    inverse = 1.0 / (x * x)
    series = 1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680)))
    return np.asarray((x - 0.5) * np.log(x) - x + 0.5 * np.log(2 * np.pi) + series / x)


def log_mixture(hits: ArrayLike, trials: ArrayLike, mixture: Mixture) -> FloatArray:
    """Return ln B(a + k, b + n - k) / B(a, b) elementwise: the mixture's own log likelihood."""
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    a, b = mixture.hits, mixture.misses
    posterior = log_gamma(a + k) + log_gamma(b + n - k) - log_gamma(a + b + n)
    return np.asarray(posterior - _log_prior(mixture))


@functools.cache
def _log_prior(mixture: Mixture) -> float:
    """Return ln B(a, b); the checks ask for that of a few mixtures, many times a second."""
    a, b = mixture.hits, mixture.misses
    return float(log_gamma(a) + log_gamma(b) - log_gamma(a + b))


def share_bounds(
    hits: ArrayLike, trials: ArrayLike, *, alpha: ArrayLike, mixture: Mixture = EVEN
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the confidence sequence of a share, elementwise.

    Args:
        hits: so far, any shape; not less than at the last look.
        trials: so far, at least the hits.
        alpha: chance that the share is ever outside.
        mixture: chosen before the first look.
    """
    k, n, level = np.broadcast_arrays(
        np.asarray(hits, dtype=np.float64),
        np.asarray(trials, dtype=np.float64),
        np.asarray(alpha, dtype=np.float64),
    )
    # p is inside while k ln p + (n - k) ln(1 - p) is over this.
    bar = log_mixture(k, n, mixture) + np.log(level)
    best = k / np.maximum(n, 1.0)
    low = _cross(k, n, bar, inside=best, outside=np.zeros_like(best))
    high = _cross(k, n, bar, inside=best, outside=np.ones_like(best))
    return np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0)


def _cross(
    k: FloatArray, n: FloatArray, bar: FloatArray, *, inside: FloatArray, outside: FloatArray
) -> FloatArray:
    """Return the share between two at which the likelihood falls to the bar, from without."""
    for _ in range(_ROUNDS):
        middle = 0.5 * (inside + outside)
        with np.errstate(divide="ignore", invalid="ignore"):
            hit = np.where(k > 0, k * np.log(middle), 0.0)
            miss = np.where(n > k, (n - k) * np.log1p(-middle), 0.0)
        is_inside = hit + miss > bar
        inside = np.where(is_inside, middle, inside)
        outside = np.where(is_inside, outside, middle)
    return outside


def rank_bounds(
    trials: ArrayLike, *, share: float, alpha: ArrayLike, strength: float = 400.0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return between which ranks a quantile ever lies, elementwise.

    The number of samples at or under the true quantile is binomial with a known share, so its
    confidence sequence holds the quantile between two order statistics, whatever the
    distribution: Howard and Ramdas, "Sequential estimation of quantiles with applications to A/B
    testing and best-arm identification", Bernoulli 28 (2022).

    Args:
        trials: samples so far.
        share: of the quantile, such as 0.99.
        alpha: chance that the quantile is ever outside.
        strength: how closely the mixture sits at the share; 400 has the tail of the 99th
            percentile double or vanish within two standard deviations.

    Returns:
        The least and the greatest number of samples that may lie at or under the quantile. The
        quantile is at least the sample of the first rank (0: no bound) and at most that of the
        second one plus one (over ``trials``: no bound), counted from 1.
    """
    n, level = np.broadcast_arrays(
        np.asarray(trials, dtype=np.int64), np.asarray(alpha, dtype=np.float64)
    )
    mixture = Mixture(hits=share * strength, misses=(1.0 - share) * strength)

    ends: list[NDArray[np.int64]] = []
    for outside in (np.full_like(n, -1), n + 1):
        inside = np.floor(n * share).astype(np.int64)
        while np.any(np.abs(outside - inside) > 1):
            # What is settled already must not be asked beyond 0 and n.
            middle = np.clip((inside + outside) // 2, 0, n)
            likelihood = middle * np.log(share) + (n - middle) * np.log1p(-share)
            is_inside = log_mixture(middle, n, mixture) - likelihood < -np.log(level)
            is_open = np.abs(outside - inside) > 1
            inside = np.where(is_open & is_inside, middle, inside)
            outside = np.where(is_open & ~is_inside, middle, outside)
        ends.append(inside)
    return ends[0], ends[1]
