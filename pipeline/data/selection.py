"""Decides from hashes which rows are used and which split each belongs to; pure numpy."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import DataSettings
from pipeline.contract.batching import IntArray
from pipeline.contract.shards import SPLITS
from pipeline.data.row_facts import NOT_SAMPLED, RowFacts
from pipeline.data.rows import RejectReason

ReadLabels = Callable[[IntArray], Sequence[Sequence[str]]]
"""Returns the labels of the rows at these positions, which ascend."""
_TRAIN, _VALIDATION, _TEST = range(len(SPLITS))


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Rows divided by label, those with several by their rarest."""

    pool: IntArray
    """Pool of each row, ``int64 [rows]``."""
    names: list[str]
    """Label of each pool, sorted; empty for rows without any."""


def reject_duplicates(facts: RowFacts) -> None:
    """Leave every text once; a text with two labels goes in all its rows.

    Of rows with equal texts and labels the first stays. If files or a column give them to
    different splits, the first of the last split (train, validation, test) stays: what is
    measured on is kept whole.
    """
    rows = facts.usable
    rows = rows[_stands_twice(facts.text_high[rows])]
    if not len(rows):
        return
    # `lexsort` is stable, so rows of one text stay in their order.
    rows = rows[np.lexsort((facts.text_low[rows], facts.text_high[rows]))]
    high, low = facts.text_high[rows], facts.text_low[rows]
    begins = np.concatenate([[True], (high[1:] != high[:-1]) | (low[1:] != low[:-1])])
    starts, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    labels, given = facts.label_hash[rows], facts.given_split[rows]
    differ = np.minimum.reduceat(labels, starts) != np.maximum.reduceat(labels, starts)
    last_split = np.maximum.reduceat(given, starts)[group]
    candidates = np.flatnonzero(given == last_split)
    kept = candidates[np.unique(group[candidates], return_index=True)[1]]
    is_dropped = np.ones(len(rows), dtype=np.bool_)
    is_dropped[kept] = False
    is_conflict = differ[group]
    is_across = given != last_split
    facts.reject(rows[is_conflict], RejectReason.CONFLICTING_LABELS)
    facts.reject(rows[is_dropped & ~is_conflict & is_across], RejectReason.DUPLICATE_ACROSS_SPLITS)
    facts.reject(rows[is_dropped & ~is_conflict & ~is_across], RejectReason.DUPLICATE)


def _stands_twice(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    in_order = np.sort(hashes)
    repeated = in_order[1:][in_order[1:] == in_order[:-1]]
    if not len(repeated):
        return np.zeros(len(hashes), dtype=np.bool_)
    places = np.minimum(np.searchsorted(repeated, hashes), len(repeated) - 1)
    return np.asarray(repeated[places] == hashes)


def label_pools(facts: RowFacts, rows: IntArray, read_labels: ReadLabels) -> Pools:
    """Return the pool of each of these rows."""
    _, first, combination, counts = np.unique(
        facts.label_hash[rows], return_index=True, return_inverse=True, return_counts=True
    )
    in_order = np.argsort(first)
    read = read_labels(rows[first[in_order]])
    labels = {int(index): tuple(row) for index, row in zip(in_order, read, strict=True)}
    totals: Counter[str] = Counter()
    for index, row in labels.items():
        totals.update(dict.fromkeys(row, int(counts[index])))
    rarest = [
        min(labels[index], key=lambda name: (totals[name], name), default="")
        for index in range(len(counts))
    ]
    names = sorted(set(rarest))
    places = {name: place for place, name in enumerate(names)}
    pool_of = np.array([places[name] for name in rarest], dtype=np.int64)
    return Pools(pool=pool_of[combination], names=names)


def sample_rows(facts: RowFacts, *, count: int, pools: Pools) -> None:
    """Leave at most ``count`` of the usable rows, the pools as equal as they can be.

    Within a pool the rows go by hash of seed and text, so added rows displace few. A pool
    with too few rows gives all it has and the others share the rest.

    Args:
        facts: of all rows.
        count: rows to keep.
        pools: of the usable rows.
    """
    assert facts.draw is not None
    rows = facts.usable
    available = np.bincount(pools.pool, minlength=len(pools.names))
    quotas = share_out(dict(zip(pools.names, available.tolist(), strict=True)), count)
    quota = np.array([quotas[name] for name in pools.names], dtype=np.int64)
    rank = _rank_in_pool(pools.pool, (facts.draw[rows],))
    facts.reason[rows[rank >= quota[pools.pool]]] = NOT_SAMPLED


def share_out(available: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many to take of each label: equal, no more than there are, ``count`` in all.

    Example: ``{"a": 2, "b": 9, "c": 9}``, count 10 -> ``{"a": 2, "b": 4, "c": 4}``.
    """
    quotas = {}
    by_size = sorted(available, key=lambda label: (available[label], label))
    for place, label in enumerate(by_size):
        quotas[label] = min(available[label], count // (len(by_size) - place))
        count -= quotas[label]
    return quotas


def assign_splits(facts: RowFacts, data: DataSettings, *, pools: Pools | None) -> None:
    """Give every usable row its split: the given one, or else by hash of its text.

    By hash, neither other rows nor the seed have a say: the first 64 bits, read as a
    number in [0, 1), mean test below ``test_share``, then validation, then train. A split
    with files of its own gets no other rows.

    Args:
        facts: of all rows.
        data: shares and files.
        pools: of the usable rows, for ``data.stratify``: each pool is divided exactly, its
            smallest hashes to test, then validation; train keeps at least one row.
    """
    test_share = 0.0 if data.test_files else data.test_share
    validation_share = 0.0 if data.validation_files else data.validation_share
    rows = facts.usable
    facts.split[rows] = facts.given_split[rows]
    is_free = facts.given_split[rows] < 0
    free = rows[is_free]
    high = facts.text_high[free]
    if pools is None:
        position = high.astype(np.float64) / 2**64
        is_test, is_train = position < test_share, position >= test_share + validation_share
    else:
        pool = pools.pool[is_free]
        size = np.bincount(pool, minlength=len(pools.names))
        num_test = np.minimum(_round(size * test_share), np.maximum(size - 1, 0))
        held_out = num_test + _round(size * validation_share)
        held_out = np.maximum(num_test, np.minimum(held_out, size - 1))
        rank = _rank_in_pool(pool, (high, facts.text_low[free]))
        is_test, is_train = rank < num_test[pool], rank >= held_out[pool]
    facts.split[free] = np.where(is_test, _TEST, np.where(is_train, _TRAIN, _VALIDATION))


def _round(values: NDArray[np.floating[Any]]) -> IntArray:
    return np.asarray(np.floor(values + 0.5), dtype=np.int64)


def _rank_in_pool(pool: IntArray, keys: tuple[NDArray[np.uint64], ...]) -> IntArray:
    """Return each row's place among its pool's rows by ascending keys, ``int64 [rows]``."""
    order = np.lexsort((*reversed(keys), pool))
    sizes = np.bincount(pool)
    rank = np.empty(len(pool), dtype=np.int64)
    rank[order] = np.arange(len(pool)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
