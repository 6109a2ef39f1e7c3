"""Token lengths in numbers: their histogram and percentiles."""

from dataclasses import dataclass

import numpy as np

from pipeline.contract.batching import IntArray

PICTURE_NAME = "lengths.svg"
"""File of a shards folder that shows lengths, buckets and padding."""


@dataclass(frozen=True, kw_only=True)
class LengthFigures:
    """Tokens of the rows of one split; each percentile is the length of a real row."""

    min: int
    p1: int
    p10: int
    p50: int
    p90: int
    p99: int
    max: int
    mean: float


def length_histogram(lengths: IntArray) -> dict[str, list[int]]:
    """Return the distinct lengths, ascending, and how many rows have each.

    Example: ``[3, 9, 3]`` -> ``{"tokens": [3, 9], "rows": [2, 1]}``.
    """
    tokens, rows = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    return {"tokens": tokens.tolist(), "rows": rows.tolist()}


def length_figures(lengths: IntArray) -> LengthFigures:
    """Return smallest, largest and mean length and the percentiles between.

    A percentile p is the least length that at least p % of the rows do not exceed.

    Raises:
        ValueError: no lengths.
    """
    if len(lengths) == 0:
        raise ValueError("no lengths to describe")
    shares = (0, 1, 10, 50, 90, 99, 100)
    found = np.percentile(lengths, shares, method="inverted_cdf").astype(np.int64).tolist()
    names = ("min", "p1", "p10", "p50", "p90", "p99", "max")
    return LengthFigures(
        **dict(zip(names, found, strict=True)), mean=round(float(np.mean(lengths)), 2)
    )
