"""How good predicted sets of labels are (multi-label texts); pure numpy.

What stands for accuracy is *exact match*: the share of texts whose whole set of labels is
right, as scikit-learn's ``accuracy_score`` has it. The share of single label decisions that
are right would mislead: where a text bears 1 of 30 labels, giving none at all scores 97 %.
Micro F1 pools the decisions on all labels; macro F1 weighs all labels the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.label_sets import BoolArray, given_labels, label_scores, multi_hot
from pipeline.quality import ClassScore, FloatArray, mean_f1, precision_recall_f1


def exact_matches(true: BoolArray, given: BoolArray) -> BoolArray:
    """Return which rows of ``[rows, num_labels]`` are right in every label, bool ``[rows]``."""
    return np.asarray((true == given).all(axis=1), dtype=np.bool_)


def score_labels(true: BoolArray, given: BoolArray) -> list[ClassScore]:
    """Return precision, recall and F1 of every label."""
    hits, predicted, support = (true & given).sum(axis=0), given.sum(axis=0), true.sum(axis=0)
    return [
        _score(int(hits[label]), int(predicted[label]), int(support[label]))
        for label in range(true.shape[1])
    ]


def pool_labels(true: BoolArray, given: BoolArray) -> ClassScore:
    """Return micro precision, recall and F1: the decisions on all labels counted together."""
    return _score(int((true & given).sum()), int(given.sum()), int(true.sum()))


def score_logits(
    logits: Sequence[FloatArray], labels: Sequence[NDArray[np.int32]], num_labels: int
) -> dict[str, float]:
    """Return ``accuracy`` (exact match), ``micro_f1`` and ``macro_f1`` of rows.

    Raises:
        ValueError: logits and labels are not of the same rows, or there are none.
    """
    scores, true = join_rows(logits, labels, num_labels)
    given = given_labels(scores)
    return {
        "accuracy": float(exact_matches(true, given).mean()),
        "micro_f1": pool_labels(true, given).f1,
        "macro_f1": mean_f1(score_labels(true, given)),
    }


def join_rows(
    logits: Sequence[FloatArray], labels: Sequence[NDArray[np.int32]], num_labels: int
) -> tuple[NDArray[np.float64], BoolArray]:
    """Return scores and true labels of rows, float64 and bool ``[rows, num_labels]``.

    Raises:
        ValueError: logits and labels are not of the same rows, or there are none.
    """
    if not logits or len(logits) != len(labels):
        raise ValueError(f"need logits and labels of the same rows: {len(logits)}, {len(labels)}")
    return label_scores(np.stack(logits)), multi_hot(labels, num_labels)


def _score(hits: int, predicted: int, support: int) -> ClassScore:
    shares = precision_recall_f1(hits, predicted, support)
    return ClassScore(**shares, support=support, predicted=predicted)
