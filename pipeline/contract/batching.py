"""Padded-token cost, bucket edges, grouping and padding; pure numpy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
RUN_TOKENS = 27
"""What a model run costs beside its padded tokens, in tokens. Measured 2026-12-02, INT8 MiniLM, one
thread: 27 from batches filled to 256 and to 512 tokens, 37 from single runs of 28 and of 512
(``tests/perf/session_operators.py``); between the two the groups hardly differ."""


def padded_token_count(lengths: Sequence[int] | IntArray) -> int:
    """Return ``rows * longest``, the tokens that a padded batch costs.

    Example: ``padded_token_count([3, 9, 4]) == 27``.
    """
    return len(lengths) * int(max(lengths)) if len(lengths) else 0


def padding_share(lengths: IntArray, groups: Sequence[IntArray]) -> float:
    """Return the share of padding among all tokens of these padded groups, 0 to 1."""
    padded = sum(padded_token_count(lengths[group]) for group in groups)
    real = sum(int(lengths[group].sum()) for group in groups)
    return 1.0 - real / padded if padded else 0.0


def choose_bucket_edges(lengths: IntArray, *, num_buckets: int) -> IntArray:
    """Return the upper edges (inclusive, ascending) that minimise padded tokens.

    Exact dynamic program over the distinct lengths: ``cost[k, j]`` is the least number
    of padded tokens when the first ``j`` distinct lengths fill ``k`` buckets, and a
    bucket costs its rows times its longest. ``O(num_buckets * distinct**2)``.
    Fewer distinct lengths than buckets give one bucket for each length.

    Example: lengths ``[3, 3, 4, 9]`` in 2 buckets -> ``[4, 9]``.

    Raises:
        ValueError: no lengths, or ``num_buckets`` below 1.
    """
    if len(lengths) == 0 or num_buckets < 1:
        raise ValueError(f"need lengths and num_buckets >= 1, got {len(lengths)}, {num_buckets}")
    distinct, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    rows_before = np.concatenate([[0], np.cumsum(counts)])
    num_distinct = len(distinct)
    num_buckets = min(num_buckets, num_distinct)
    best = rows_before[1:] * distinct
    first_of_last = np.zeros((num_buckets, num_distinct), dtype=np.int64)
    for bucket in range(1, num_buckets):
        previous, best = best, best.copy()
        for end in range(bucket, num_distinct):
            starts = np.arange(bucket, end + 1)
            last_bucket = (rows_before[end + 1] - rows_before[starts]) * distinct[end]
            costs = previous[starts - 1] + last_bucket
            choice = int(np.argmin(costs))
            best[end], first_of_last[bucket, end] = costs[choice], starts[choice]
    edges, end = [], num_distinct - 1
    for bucket in range(num_buckets - 1, -1, -1):
        edges.append(distinct[end])
        end = int(first_of_last[bucket, end]) - 1
    return np.array(edges[::-1], dtype=np.int64)


def bucket_of(lengths: IntArray, bucket_edges: IntArray) -> IntArray:
    """Return each length's bucket, ``int64 [rows]``: the first edge that holds it.

    Example: lengths ``[3, 9, 4]``, edges ``[4, 9]`` -> ``[0, 1, 0]``.

    Raises:
        ValueError: a length is over the last edge.
    """
    buckets = np.searchsorted(bucket_edges, lengths, side="left")
    if len(buckets) and int(buckets.max()) >= len(bucket_edges):
        raise ValueError(f"length {int(np.max(lengths))} is over the last edge {bucket_edges[-1]}")
    return buckets.astype(np.int64)


def group_by_tokens(
    lengths: Sequence[int],
    *,
    max_batch_tokens: int,
    max_batch_requests: int,
    run_tokens: int = RUN_TOKENS,
) -> list[list[int]]:
    """Return the cheapest groups of indices, similar lengths together, none over either limit.

    A group costs its padded tokens and ``run_tokens`` more; of all ways to cut the rows in the
    order of their lengths the cheapest is found by dynamic programming, ``O(rows * group)``.
    The groups run from short to long; inside a group indices ascend. A row that alone
    is over ``max_batch_tokens`` still gets a group of its own: nothing is dropped.

    Example: lengths ``[3, 9, 4]``, 10 tokens, 32 requests -> ``[[0, 2], [1]]``; with
    lengths ``[8, 8, 90]`` and 1,000 tokens -> ``[[0, 1], [2]]``.

    Raises:
        ValueError: a limit is below 1.
    """
    if max_batch_tokens < 1 or max_batch_requests < 1:
        raise ValueError(f"limits must be >= 1: {max_batch_tokens}, {max_batch_requests}")
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    best, first_of_last = [0], [0]
    for end in range(1, len(order) + 1):
        longest, first = lengths[order[end - 1]], end - 1
        least = best[first] + longest
        most = max(1, min(end, max_batch_requests, max_batch_tokens // longest if longest else end))
        for rows in range(2, most + 1):
            cost = best[end - rows] + rows * longest
            if cost <= least:
                least, first = cost, end - rows
        best.append(least + run_tokens)
        first_of_last.append(first)
    groups, end = [], len(order)
    while end:
        groups.append(sorted(order[first_of_last[end] : end]))
        end = first_of_last[end]
    return groups[::-1]


def pad_rows(
    rows: Sequence[Sequence[int] | NDArray[np.integer]],
    *,
    pad_value: int,
    seq_len: int | None = None,
) -> tuple[IntArray, IntArray]:
    """Return the rows filled to one length and their mask, both ``int64 [batch, seq]``.

    ``seq`` is ``seq_len`` or else the longest row. The mask is 1 on real tokens.

    Example: ``pad_rows([[5], [6, 7]], pad_value=0)`` -> ``[[5, 0], [6, 7]], [[1, 0], [1, 1]]``.

    Raises:
        ValueError: no rows, or a row is longer than ``seq_len``.
    """
    if not len(rows):
        raise ValueError("cannot pad an empty batch")
    longest = max(len(row) for row in rows)
    if seq_len is not None and longest > seq_len:
        raise ValueError(f"a row of {longest} tokens does not fit seq_len {seq_len}")
    shape = (len(rows), seq_len or longest)
    values = np.full(shape, pad_value, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.int64)
    for index, row in enumerate(rows):
        values[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return values, mask
