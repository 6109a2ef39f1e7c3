"""What padding costs: the share of padded tokens under different orders of the rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.contract.batching import IntArray, bucket_of, padding_share
from pipeline.data.plan import PlanSettings, build_epoch_plan


def padding_figures(
    lengths: IntArray, bucket_edges: IntArray, settings: PlanSettings
) -> dict[str, float]:
    """Return the padding share, 0 to 1, of one epoch under three orders.

    ``random``: batches of shuffled rows. ``buckets``: shuffled batches, each from one
    bucket. ``buckets_window``: the plan that training follows.
    """
    buckets = bucket_of(lengths, bucket_edges)
    shuffled = np.random.default_rng(settings.seed).permutation(len(lengths))
    in_buckets = [
        batch
        for bucket in range(len(bucket_edges))
        for batch in _cut(shuffled[buckets[shuffled] == bucket], settings.batch_rows)
    ]
    plan = build_epoch_plan(lengths, epoch=0, settings=settings)
    orders = {
        "random": _cut(shuffled, settings.batch_rows),
        "buckets": in_buckets,
        "buckets_window": [plan.batch(step) for step in range(plan.num_batches)],
    }
    return {name: round(padding_share(lengths, groups), 6) for name, groups in orders.items()}


def describe_buckets(
    lengths: IntArray, bucket_edges: IntArray, settings: PlanSettings
) -> list[dict[str, Any]]:
    """Return edge, rows, tokens and padding share of each bucket.

    ``padding_to_edge`` fills every row to its bucket's edge; ``padding`` is what the rows of
    the bucket get in training, where a batch is only as long as its longest row.
    """
    buckets = bucket_of(lengths, bucket_edges)
    plan = build_epoch_plan(lengths, epoch=0, settings=settings)
    batch_lengths = np.zeros(len(lengths), dtype=np.int64)
    for step in range(plan.num_batches):
        batch_lengths[plan.batch(step)] = lengths[plan.batch(step)].max()
    described = []
    for bucket, edge in enumerate(bucket_edges.tolist()):
        inside = buckets == bucket
        rows, tokens = int(inside.sum()), int(lengths[inside].sum())
        described.append(
            {
                "edge": edge,
                "rows": rows,
                "tokens": tokens,
                "padding_to_edge": _padding(tokens, rows * edge),
                "padding": _padding(tokens, int(batch_lengths[inside].sum())),
            }
        )
    return described


def _padding(tokens: int, padded_tokens: int) -> float:
    return round(1.0 - tokens / padded_tokens, 6) if padded_tokens else 0.0


def _cut(rows: IntArray, batch_rows: int) -> Sequence[IntArray]:
    return [rows[begin : begin + batch_rows] for begin in range(0, len(rows), batch_rows)]
