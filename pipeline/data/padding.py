"""What padding costs: the share of padded tokens under different orders of the rows."""

from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.contract.batching import IntArray, bucket_of
from pipeline.data.plan import PlanSettings, build_epoch_plan
from pipeline.data.slices import SliceSettings, cut_slices


def padding_figures(
    lengths: IntArray, settings: PlanSettings, slices: SliceSettings
) -> dict[str, float]:
    """Return the padding share, 0 to 1, of one epoch under three orders.

    ``random``: batches of shuffled rows. ``buckets``: shuffled batches, each from one
    bucket. ``buckets_window``: the plan that training follows, its batches sliced as there
    (several workers and smaller slices pad still less). Only the plan heeds
    ``max_batch_tokens``.
    """
    shuffled = np.random.default_rng(settings.seed).permutation(len(lengths))
    buckets = bucket_of(lengths, slices.bucket_edges)[shuffled]
    by_bucket = shuffled[np.argsort(buckets, kind="stable")]
    bounds = [0, *np.cumsum(np.bincount(buckets, minlength=len(slices.bucket_edges))).tolist()]
    order, starts = _padded_slices(lengths, settings, slices)
    figures = {
        "random": _padding_share(lengths[shuffled], _starts(bounds[:1] + bounds[-1:], settings)),
        "buckets": _padding_share(lengths[by_bucket], _starts(bounds, settings)),
        "buckets_window": _padding_share(lengths[order], starts),
    }
    return {name: round(share, 6) for name, share in figures.items()}


def describe_buckets(
    lengths: IntArray, settings: PlanSettings, slices: SliceSettings
) -> list[dict[str, Any]]:
    """Return edge, rows, tokens and padding share of each bucket.

    ``padding_to_edge`` fills every row to its bucket's edge; ``padding`` is what the rows of
    the bucket get in training, where a slice is only as long as its longest row.
    """
    buckets = bucket_of(lengths, slices.bucket_edges)
    order, starts = _padded_slices(lengths, settings, slices)
    longest = np.maximum.reduceat(lengths[order], starts[:-1])
    padded_lengths = np.empty(len(lengths), dtype=np.int64)
    padded_lengths[order] = np.repeat(longest, np.diff(starts))
    described = []
    for bucket, edge in enumerate(slices.bucket_edges.tolist()):
        inside = buckets == bucket
        rows, tokens = int(inside.sum()), int(lengths[inside].sum())
        described.append(
            {
                "edge": edge,
                "rows": rows,
                "tokens": tokens,
                "padding_to_edge": _padding(tokens, rows * edge),
                "padding": _padding(tokens, int(padded_lengths[inside].sum())),
            }
        )
    return described


def _padded_slices(
    lengths: IntArray, settings: PlanSettings, slices: SliceSettings
) -> tuple[IntArray, IntArray]:
    """Return the plan's order and where the parts of it that are padded together begin."""
    plan = build_epoch_plan(lengths, epoch=0, settings=settings)
    return plan.order, cut_slices(lengths[plan.order], plan.starts, slices)


def _starts(bounds: list[int], settings: PlanSettings) -> IntArray:
    """Return where batches begin if none reaches over a bound, and the end."""
    parts = [np.arange(begin, end, settings.batch_rows) for begin, end in pairwise(bounds)]
    return np.concatenate([*parts, bounds[-1:]])


def _padding_share(in_order: IntArray, starts: IntArray) -> float:
    padded = np.diff(starts) * np.maximum.reduceat(in_order, starts[:-1])
    return 1.0 - int(in_order.sum()) / int(padded.sum())


def _padding(tokens: int, padded_tokens: int) -> float:
    return round(1.0 - tokens / padded_tokens, 6) if padded_tokens else 0.0
