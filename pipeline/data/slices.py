"""How a batch is divided into forward passes, so that none is mostly padding; pure numpy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray, bucket_of


@dataclass(frozen=True, kw_only=True)
class SliceSettings:
    """What bounds the rows that are padded together in one forward pass."""

    micro_batch: int
    """Rows at most."""
    bucket_edges: IntArray
    """Upper edges of the buckets, ascending, ``int64 [buckets]``; no slice reaches over one."""
    max_padding: float
    """Padding at most, as a share of the slice's tokens."""


def slice_starts(lengths: IntArray, settings: SliceSettings) -> IntArray:
    """Return where each padded slice of a worker's rows begins, and the end.

    Slicing changes no gradient: it is summed over the slices of a step.

    Example: lengths ``[3, 9, 9, 10]`` in one bucket, at most 10 % padding -> ``[0, 1, 4]``.

    Args:
        lengths: of the rows, short to long, ``int64 [rows]``.
        settings: the bounds.
    """
    return cut_slices(lengths, np.array([0, len(lengths)]), settings)


def cut_slices(in_order: IntArray, starts: IntArray, settings: SliceSettings) -> IntArray:
    """Return where each padded slice of many batches begins, and the end.

    Each batch is cut from its longest row down: a slice takes as many shorter rows as its
    bounds allow.

    Args:
        in_order: lengths, batch after batch, ascending inside each, ``int64 [rows]``.
        starts: where each batch begins, and the end, ``int64 [batches + 1]``.
        settings: the bounds.
    """
    if not len(in_order):
        return np.zeros(1, dtype=np.int64)
    buckets = bucket_of(in_order, settings.bucket_edges)
    begins_group = np.append(True, buckets[1:] != buckets[:-1])
    begins_group[starts[:-1]] = True
    earliest = _earliest_starts(in_order, begins_group, settings)
    found = []
    last = np.flatnonzero(np.append(begins_group[1:], True))
    while len(last):  # the next slice of all groups at once
        first = earliest[last]
        found.append(first)
        last = first[~begins_group[first]] - 1
    return np.append(np.sort(np.concatenate(found)), len(in_order))


def _earliest_starts(
    in_order: IntArray, begins_group: NDArray[np.bool_], settings: SliceSettings
) -> IntArray:
    """Return the first row of the largest slice that ends with each row.

    Every shorter row in front adds to the padding, so it is found by bisection.
    """
    rows = np.arange(len(in_order))
    group = np.maximum.accumulate(np.where(begins_group, rows, 0))
    low, high = np.maximum(group, rows + 1 - settings.micro_batch), rows
    tokens = np.append(0, np.cumsum(in_order))
    while np.any(low < high):
        middle = (low + high) // 2
        padded = (rows + 1 - middle) * in_order
        padding = padded - (tokens[rows + 1] - tokens[middle])
        fits = padding <= settings.max_padding * padded
        low, high = np.where(fits, low, middle + 1), np.where(fits, middle, high)
    return low
