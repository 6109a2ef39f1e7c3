"""The labels of a multi-label text: stored as ids, learned as 0 and 1, given by a threshold."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SCORE_THRESHOLD = 0.5
"""A text gets every label whose score is at least this."""

BoolArray = NDArray[np.bool_]


def multi_hot(labels: Sequence[NDArray[np.integer]], num_labels: int) -> BoolArray:
    """Return the label ids of rows as flags, bool ``[rows, num_labels]``.

    Example: ``multi_hot([[2], [], [0, 1]], 3)`` -> ``[[0, 0, 1], [0, 0, 0], [1, 1, 0]]``.
    """
    flags = np.zeros((len(labels), num_labels), dtype=np.bool_)
    for row, ids in enumerate(labels):
        flags[row, ids] = True
    return flags


def label_scores(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return every label's score, ``sigmoid(logit)``, in the shape of the logits."""
    # exp() of a magnitude only, so that large logits of either sign do not overflow.
    powers = np.exp(-np.abs(logits.astype(np.float64)))
    return np.asarray(np.where(logits >= 0, 1.0, powers) / (1.0 + powers), dtype=np.float64)


def given_labels(scores: NDArray[np.float64]) -> BoolArray:
    """Return which labels a text gets, bool in the shape of the scores."""
    return np.asarray(scores >= SCORE_THRESHOLD, dtype=np.bool_)
