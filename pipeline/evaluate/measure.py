"""The figures of metrics.json: quality over all rows, per class and per length bucket."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pipeline.calibration import calibration_bins, expected_calibration_error
from pipeline.contract.batching import IntArray, bucket_of
from pipeline.contract.shards import ShardSplit
from pipeline.evaluate.judged import Judged
from pipeline.evaluate.scored_positions import Scored
from pipeline.quality import (
    FloatArray,
    class_scores,
    confusion_matrix,
    entity_f1,
    is_bio,
    labels_of,
    mean_f1,
    paired_p_value,
    tags_of,
    wilson_interval,
)

RowTags = tuple[list[str], list[str]]
"""A row's true and predicted tags, one for each labelled word."""


def measure_answers(scored: Judged) -> dict[str, Any]:
    """Return the figures that all rows and every length bucket get: accuracy, F1, calibration."""
    hits, count = int(scored.is_right.sum()), len(scored.rows)
    return {
        "scored": count,
        "accuracy": hits / count,
        "accuracy_95": list(wilson_interval(hits, count)),
        "macro_f1": scored.macro_f1,
        "micro_f1": scored.micro_f1,
        "calibration_error": expected_calibration_error(*scored.answers()),
    }


def measure_quality(scored: Judged, labels: Sequence[str]) -> dict[str, Any]:
    """Return :func:`measure_answers`, the bins of the calibration, and the classes."""
    return {
        **measure_answers(scored),
        "calibration": [asdict(each) for each in calibration_bins(*scored.answers())],
        "per_class": [
            {"label": name, **asdict(score)}
            for name, score in zip(labels, scored.per_class, strict=True)
        ],
    }


def measure_buckets(
    scored: Judged,
    lengths: IntArray,
    bucket_edges: IntArray,
    *,
    tags: Sequence[RowTags] | None = None,
) -> list[dict[str, Any]]:
    """Return the figures of every length bucket that has test rows.

    ``min_tokens`` and ``max_tokens`` are the bucket's limits, both inclusive.

    Args:
        scored: what is measured.
        lengths: tokens of every row.
        bucket_edges: greatest length of every bucket.
        tags: of every row, from :func:`tags_of_rows`.
    """
    buckets = bucket_of(lengths, bucket_edges)
    found = []
    for bucket, edge in enumerate(bucket_edges.tolist()):
        rows = np.flatnonzero(buckets == bucket)
        is_inside = np.isin(scored.rows, rows)
        if not is_inside.any():
            continue
        entities = measure_entities([tags[row] for row in rows.tolist()]) if tags else None
        if entities is not None:
            del entities["by_type"]
        found.append(
            {
                "min_tokens": int(bucket_edges[bucket - 1]) + 1 if bucket else 1,
                "max_tokens": edge,
                "rows": len(rows),
                **measure_answers(scored.select(is_inside)),
                "entity_f1": entities,
            }
        )
    return found


def tags_of_rows(
    split: ShardSplit, logits: Sequence[FloatArray], labels: Sequence[str]
) -> list[RowTags] | None:
    """Return every row's true and predicted tags, None when the labels are no BIO tags."""
    if not is_bio(labels):
        return None
    return [tags_of(row, true, labels) for row, true in zip(logits, labels_of(split), strict=True)]


def measure_entities(tags: Sequence[RowTags]) -> dict[str, Any]:
    """Return :func:`entity_f1` of rows."""
    return entity_f1([true for true, _ in tags], [predicted for _, predicted in tags])


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
