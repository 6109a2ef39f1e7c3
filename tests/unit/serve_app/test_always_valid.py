"""Laws of the intervals: exact martingales, nested levels, the right answers by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.release.always_valid import (
    EVEN,
    HALF,
    RARE,
    log_gamma,
    log_mixture,
    rank_bounds,
    share_bounds,
)

MIXTURES = pytest.mark.parametrize("mixture", [EVEN, RARE, HALF])


@given(st.floats(1e-3, 1e9))
def test_log_gamma_is_that_of_the_standard_library(x):
    assert log_gamma(x) == pytest.approx(math.lgamma(x), rel=1e-11, abs=1e-11)


@MIXTURES
@pytest.mark.parametrize("share", [0.001, 0.3, 0.99])
@pytest.mark.parametrize("trials", [1, 7, 60])
def test_the_likelihood_ratio_has_mean_one_at_the_truth(mixture, share, trials):
    hits = np.arange(trials + 1)
    likelihood = [math.comb(trials, int(k)) * share**k * (1 - share) ** (trials - k) for k in hits]
    log_ratio = (
        log_mixture(hits, trials, mixture)
        - hits * math.log(share)
        - (trials - hits) * math.log1p(-share)
    )

    # Ville's inequality asks for nothing else.
    assert np.sum(likelihood * np.exp(log_ratio)) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.slow
@MIXTURES
@given(data=st.data())
def test_bounds_hold_the_estimate_and_widen_with_confidence(mixture, data):
    trials = data.draw(st.integers(1, 10_000_000))
    hits = data.draw(st.integers(0, trials))
    low, high = share_bounds(hits, trials, alpha=[1e-4, 0.05], mixture=mixture)

    assert 0.0 <= low[0] <= low[1] <= hits / trials <= high[1] <= high[0] <= 1.0


@MIXTURES
def test_bounds_are_where_the_likelihood_ratio_reaches_the_level(mixture):
    low, high = share_bounds(30, 1_000, alpha=1e-3, mixture=mixture)
    for share in (float(low), float(high)):
        ratio = log_mixture(30, 1_000, mixture) - 30 * math.log(share) - 970 * math.log1p(-share)
        assert ratio == pytest.approx(math.log(1_000), abs=1e-6)


def test_without_trials_nothing_is_known():
    low, high = share_bounds([0], [0], alpha=0.05)

    assert (low[0], high[0]) == (0.0, 1.0)


@pytest.mark.slow
def test_looking_always_misses_no_more_often_than_stated():
    rng = np.random.default_rng(3)
    hits = (rng.random((500, 1_000)) < 0.03).cumsum(axis=1)
    low, high = share_bounds(hits, np.arange(1, 1_001), alpha=0.1, mixture=RARE)

    has_missed = ((low > 0.03) | (high < 0.03)).any(axis=1)
    assert has_missed.mean() <= 0.1


@pytest.mark.parametrize("share", [0.5, 0.99])
@pytest.mark.parametrize("trials", [0, 1, 5, 400, 20_000])
def test_ranks_are_those_whose_likelihood_ratio_is_under_the_level(share, trials):
    least, most = rank_bounds(trials, share=share, alpha=0.01)

    ranks = np.arange(trials + 1)
    mixture = type(EVEN)(hits=400 * share, misses=400 * (1 - share))
    ratio = (
        log_mixture(ranks, trials, mixture)
        - ranks * math.log(share)
        - (trials - ranks) * math.log1p(-share)
    )
    inside = ranks[ratio < math.log(100)]
    assert (int(least), int(most)) == (inside[0], inside[-1])


def test_a_quantile_is_held_at_every_look_as_often_as_stated():
    rng = np.random.default_rng(4)
    under = (rng.random((300, 2_000)) < 0.99).cumsum(axis=1)
    least, most = rank_bounds(np.arange(1, 2_001), share=0.99, alpha=0.1)

    assert ((under < least) | (under > most)).any(axis=1).mean() <= 0.1
