"""The figures of metrics.json: quality over all rows, per class and per length bucket."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray, bucket_of
from pipeline.contract.label_sets import BoolArray
from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.quality import (
    FloatArray,
    class_scores,
    confusion_matrix,
    entity_f1,
    expected_calibration_error,
    is_bio,
    join_labelled,
    labels_of,
    mean_f1,
    paired_p_value,
    softmax,
    tags_of,
    wilson_interval,
)


class Judged(Protocol):
    """Answers beside what is true, whatever the task; position by position."""

    @property
    def rows(self) -> IntArray:
        """int64 ``[n]``: the row that the position belongs to."""
        ...

    @property
    def positions(self) -> IntArray:
        """int64 ``[n]``: the position within its row, 0 for a text."""
        ...

    @property
    def is_right(self) -> BoolArray:
        """Whether the answer is right, bool ``[n]``."""
        ...

    @property
    def confidence(self) -> NDArray[np.float64]:
        """float64 ``[n]``, 0 to 1: how sure the model was of its answer."""
        ...

    def name_true(self, place: int, labels: Sequence[str]) -> str:
        """Return the true answer at a place of ``[n]``, for people."""
        ...

    def name_predicted(self, place: int, labels: Sequence[str]) -> str:
        """Return the model's answer at a place of ``[n]``, for people."""
        ...


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Every labelled position (a text, or a word of it) of a split, in row order."""

    rows: IntArray
    """int64 ``[n]``: the row that the position belongs to."""
    positions: IntArray
    """int64 ``[n]``: the position within its row, 0 for a text."""
    true: IntArray
    """int64 ``[n]``."""
    predicted: IntArray
    """int64 ``[n]``."""
    probabilities: NDArray[np.float64]
    """float64 ``[n, num_labels]``."""

    @property
    def is_right(self) -> BoolArray:
        """Whether the answer is right, bool ``[n]``."""
        return np.asarray(self.predicted == self.true, dtype=np.bool_)

    @property
    def confidence(self) -> NDArray[np.float64]:
        """float64 ``[n]``: probability of the predicted label."""
        return np.asarray(self.probabilities.max(axis=-1), dtype=np.float64)

    def name_true(self, place: int, labels: Sequence[str]) -> str:
        """Return the label at a place."""
        return labels[int(self.true[place])]

    def name_predicted(self, place: int, labels: Sequence[str]) -> str:
        """Return the predicted label at a place."""
        return labels[int(self.predicted[place])]


def score_positions(split: ShardSplit, logits: Sequence[FloatArray]) -> Scored:
    """Return predictions and labels of all labelled positions.

    Raises:
        ValueError: logits and rows do not match, or nothing is labelled.
    """
    labels = labels_of(split)
    scores, true = join_labelled(logits, labels)
    places = [np.flatnonzero(row != IGNORED_LABEL) for row in labels]
    return Scored(
        rows=np.repeat(np.arange(len(labels)), [len(place) for place in places]),
        positions=np.concatenate(places).astype(np.int64),
        true=true,
        predicted=scores.argmax(axis=-1).astype(np.int64),
        probabilities=softmax(scores),
    )


def measure_quality(scored: Scored, labels: Sequence[str]) -> dict[str, Any]:
    """Return accuracy with its 95 % interval, macro F1, calibration, classes, confusion."""
    confusion = confusion_matrix(scored.true, scored.predicted, len(labels))
    classes = class_scores(confusion)
    hits, count = int(np.trace(confusion)), len(scored.true)
    return {
        "scored": count,
        "accuracy": hits / count,
        "accuracy_95": list(wilson_interval(hits, count)),
        "macro_f1": mean_f1(classes),
        "calibration_error": expected_calibration_error(scored.probabilities, scored.true),
        "per_class": [
            {"label": name, **asdict(score)} for name, score in zip(labels, classes, strict=True)
        ],
        "confusion": confusion.tolist(),
    }


def measure_buckets(
    scored: Judged, lengths: IntArray, bucket_edges: IntArray
) -> list[dict[str, Any]]:
    """Return accuracy and its 95 % interval of every length bucket that has test rows.

    ``min_tokens`` and ``max_tokens`` are the bucket's limits, both inclusive.
    """
    buckets, is_right = bucket_of(lengths, bucket_edges), scored.is_right
    found = []
    for bucket, edge in enumerate(bucket_edges.tolist()):
        is_inside = buckets[scored.rows] == bucket
        count, hits = int(is_inside.sum()), int(is_right[is_inside].sum())
        if not count:
            continue
        found.append(
            {
                "min_tokens": int(bucket_edges[bucket - 1]) + 1 if bucket else 1,
                "max_tokens": edge,
                "rows": int((buckets == bucket).sum()),
                "scored": count,
                "accuracy": hits / count,
                "accuracy_95": list(wilson_interval(hits, count)),
            }
        )
    return found


def measure_entities(
    split: ShardSplit, logits: Sequence[FloatArray], labels: Sequence[str]
) -> dict[str, Any] | None:
    """Return :func:`entity_f1` of token labels, None when they are not BIO tags."""
    if not is_bio(labels):
        return None
    pairs = [tags_of(row, true, labels) for row, true in zip(logits, labels_of(split), strict=True)]
    return entity_f1([true for true, _ in pairs], [predicted for _, predicted in pairs])


def compare_with_baseline(
    scored: Scored, predicted: IntArray, *, name: str, num_labels: int
) -> dict[str, Any]:
    """Return the baseline's figures and how its answers differ from the model's.

    ``p_value`` is that of :func:`paired_p_value`: small means that the difference in
    accuracy is not luck.
    """
    model_right, baseline_right = scored.is_right, predicted == scored.true
    only_model = int(np.sum(model_right & ~baseline_right))
    only_baseline = int(np.sum(baseline_right & ~model_right))
    scores = class_scores(confusion_matrix(scored.true, predicted, num_labels))
    return {
        "name": name,
        "accuracy": float(np.mean(baseline_right)),
        "macro_f1": mean_f1(scores),
        "only_model_right": only_model,
        "only_baseline_right": only_baseline,
        "p_value": paired_p_value(only_model, only_baseline),
    }
