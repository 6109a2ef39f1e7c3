import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.multi_label_quality import (
    exact_matches,
    pool_labels,
    score_labels,
    score_logits,
)

TRUE = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]], dtype=bool)
GIVEN = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]], dtype=bool)
FLAGS = hnp.arrays(bool, st.tuples(st.integers(1, 8), st.integers(1, 5)))


def ids_of(flags):
    return [np.flatnonzero(row).astype(np.int32) for row in flags]


def test_figures_worked_by_hand():
    logits = [np.where(row, 2.0, -2.0).astype(np.float32) for row in GIVEN]

    figures = score_logits(logits, ids_of(TRUE), 3)

    # Label 0: 2 of 3 given and of 2 true, F1 4/5. Label 1: 1 of 1 and of 2, F1 2/3.
    # Label 2 is neither true nor given and says nothing. Pooled: 3 of 4 and of 4.
    assert figures == pytest.approx(
        {"accuracy": 2 / 4, "micro_f1": 3 / 4, "macro_f1": (4 / 5 + 2 / 3) / 2}
    )


def test_a_text_without_labels_is_right_when_none_is_given():
    assert exact_matches(TRUE, GIVEN).tolist() == [True, False, True, False]


def test_every_label_has_its_own_figures():
    scores = score_labels(TRUE, GIVEN)

    shown = [(score.precision, score.recall, score.support, score.predicted) for score in scores]
    assert shown == [(2 / 3, 1.0, 2, 3), (1.0, 0.5, 2, 1), (0.0, 0.0, 0, 0)]


@pytest.mark.slow
@given(FLAGS)
def test_the_truth_against_itself_is_right_everywhere(flags):
    assert exact_matches(flags, flags).all()
    assert pool_labels(flags, flags).f1 == (1.0 if flags.any() else 0.0)


@pytest.mark.slow
@given(FLAGS, st.randoms(use_true_random=False))
def test_pooled_counts_are_the_sums_over_labels(flags, random):
    other = np.array([[random.random() < 0.5 for _ in row] for row in flags], dtype=bool)

    pooled, by_label = pool_labels(flags, other), score_labels(flags, other)

    assert pooled.support == sum(score.support for score in by_label)
    assert pooled.predicted == sum(score.predicted for score in by_label)
    assert pooled.f1 == pool_labels(other, flags).f1


def test_figures_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    true, given_flags = rng.random((50, 4)) < 0.4, rng.random((50, 4)) < 0.4
    logits = [np.where(row, 1.0, -1.0).astype(np.float32) for row in given_flags]

    figures = score_logits(logits, ids_of(true), 4)

    assert figures == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(true, given_flags),
            "micro_f1": metrics.f1_score(true, given_flags, average="micro"),
            "macro_f1": metrics.f1_score(true, given_flags, average="macro"),
        }
    )


def test_rows_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="same rows: 0, 4"):
        score_logits([], ids_of(TRUE), 3)
