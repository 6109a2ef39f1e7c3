"""Labels of multi-label texts as ids, flags and scores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.label_sets import given_labels, label_scores, multi_hot


def test_ids_become_flags_and_no_ids_none():
    rows = [np.array(ids, dtype=np.int32) for ids in ([2], [], [0, 1])]

    assert multi_hot(rows, 3).astype(int).tolist() == [[0, 0, 1], [0, 0, 0], [1, 1, 0]]


def test_no_rows_give_no_flags():
    assert multi_hot([], 3).shape == (0, 3)


def test_scores_are_sigmoids_and_survive_large_logits():
    scores = label_scores(np.array([[0.0, np.log(3), -np.log(3), 1e4, -1e4]], dtype=np.float32))

    np.testing.assert_allclose(scores, [[0.5, 0.75, 0.25, 1.0, 0.0]], atol=1e-7)


@given(st.floats(-1e6, 1e6, width=32))
def test_a_label_is_given_exactly_when_its_logit_is_not_negative(logit):
    scores = label_scores(np.array([logit], dtype=np.float32))

    # -1e-20 and below round to a score of one half.
    if abs(logit) > 1e-6 or logit >= 0:
        assert given_labels(scores).tolist() == [logit >= 0]
