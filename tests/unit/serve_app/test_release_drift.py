import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import profile_values

from pipeline.contract.profile import (
    TrainingProfile,
    confidence_class,
    count_lengths,
    length_class,
    length_edges,
)
from serve_app.release.drift import (
    MIN_TEXTS,
    DriftLevel,
    drift_warnings,
    find_drift,
    population_stability_index,
)
from serve_app.release.report import LiveProfile
from serve_app.release.tallies import ProfileTally, empty_profile, merge_profiles

PERCENTILES = range(3, 104)
LABELS = [f"label {number}" for number in range(77)]
COUNTS = st.lists(st.integers(0, 10_000), min_size=2, max_size=12).filter(sum)


def stored(labels=LABELS):
    return TrainingProfile(**profile_values(PERCENTILES, labels))


def live(**changes):
    profile = stored()
    values = {
        "version": "v",
        "length_counts": profile.length_counts,
        "num_tokens": profile.num_tokens,
        "num_unknown_tokens": profile.num_unknown_tokens,
        "confidence_counts": profile.confidence_counts,
        "label_counts": profile.label_counts,
    }
    return LiveProfile(**{**values, **changes})


def levels(found):
    return {one.feature: one.level for one in found}


def test_the_index_is_the_formula():
    # 50/50 against 80/20: 2 x 0.3 x ln 4 / 2.
    index = population_stability_index([500_000, 500_000], [800_000, 200_000])

    expected = 0.3 * math.log(0.5 / 0.2) - 0.3 * math.log(0.5 / 0.8)
    assert index == pytest.approx(expected, rel=1e-4)


@given(COUNTS, st.integers(1, 5))
def test_the_index_is_never_negative_and_zero_for_equal_rows(counts, factor):
    assert population_stability_index(counts, counts) == pytest.approx(0.0)
    other = [factor * count + 1 for count in counts]
    assert population_stability_index(counts, other) >= 0.0


def test_rows_that_cannot_be_compared_are_refused():
    for rows in (([1, 2], [1]), ([0, 0], [1, 1]), ([1], [0]), ([], [])):
        with pytest.raises(ValueError, match="same classes"):
            population_stability_index(*rows)


def test_equal_texts_drift_nowhere():
    assert set(levels(find_drift(live(), stored())).values()) == {DriftLevel.NONE}


def test_chance_alone_is_no_drift_even_with_77_labels():
    rng = np.random.default_rng(1)
    counts = rng.multinomial(1_000, [1 / 77] * 77).tolist()
    found = find_drift(live(label_counts=dict(zip(LABELS, counts, strict=True))), stored())

    assert levels(found)["labels"] is DriftLevel.NONE


@pytest.mark.parametrize(
    ("changes", "feature", "level"),
    [
        ({"length_counts": (0,) * 9 + (1_000,)}, "length", DriftLevel.LARGE),
        ({"num_unknown_tokens": 8_000}, "unknown_tokens", DriftLevel.LARGE),
        ({"num_unknown_tokens": 1_000}, "unknown_tokens", DriftLevel.MODERATE),
        ({"num_unknown_tokens": 200}, "unknown_tokens", DriftLevel.NONE),
        (
            {"confidence_counts": (0,) * 5 + (200, 200, 200, 200, 200)},
            "confidence",
            DriftLevel.LARGE,
        ),
        ({"label_counts": {"label 0": 1_000}}, "labels", DriftLevel.LARGE),
        ({"label_counts": {"of another model": 1_000}}, "labels", DriftLevel.LARGE),
    ],
)
def test_each_feature_is_found(changes, feature, level):
    found = find_drift(live(**changes), stored())

    assert levels(found)[feature] is level
    warnings = drift_warnings(found)
    assert bool(warnings) == (level is not DriftLevel.NONE)
    assert all(warning.startswith("v: ") and "PSI" in warning for warning in warnings)


def test_few_texts_and_a_missing_profile_say_nothing():
    few = find_drift(live(length_counts=(MIN_TEXTS - 1,) + (0,) * 9), stored())
    assert set(levels(few).values()) == {DriftLevel.INCONCLUSIVE}
    bare = stored().model_copy(update={"label_counts": {}})
    found = {one.feature: one for one in find_drift(live(label_counts={"a": 1_000}), bare)}
    assert found["labels"].level is DriftLevel.INCONCLUSIVE


@pytest.mark.slow
@given(st.lists(st.integers(3, 512), min_size=101, max_size=101).map(sorted))
def test_every_length_has_one_class_and_edges_rise(percentiles):
    edges = length_edges(percentiles)

    assert list(edges) == sorted(set(edges))
    assert 1 <= len(edges) <= 9
    classes = [length_class(length, edges) for length in percentiles]
    assert count_lengths(percentiles, edges) == tuple(
        classes.count(index) for index in range(len(edges) + 1)
    )


@pytest.mark.parametrize(("score", "index"), [(0.0, 0), (0.0999, 0), (0.1, 1), (0.95, 9), (1.0, 9)])
def test_confidence_has_ten_classes(score, index):
    assert confidence_class(score) == index


def test_a_live_profile_forgets_its_older_half():
    tally, part = ProfileTally(now=empty_profile("v")), live()
    for _ in range(100):
        tally.add(part)

    total = sum(tally.total().length_counts)
    assert 20_000 <= total <= 40_000
    assert merge_profiles(part, part).label_counts["label 0"] == 2 * part.label_counts["label 0"]
