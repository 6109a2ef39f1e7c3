"""Token dropout and span masking of training rows, drawn from the row's identity; numpy only.

A row's draws come from a counter-based generator (SplitMix64: Steele, Lea, Flood 2014, "Fast
splittable pseudorandom number generators") whose key is made of seed, epoch, row
and window. There is no state, so which process reads the row, in which batch and after which
other rows changes nothing; and the arithmetic is whole numbers, the same on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray

MAX_SPAN_TOKENS = 10
_UintArray = NDArray[np.uint64]
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_DRAWS_OF_ONE_KIND = 1 << 32
_DROPOUT, _BUDGET, _SPAN_LENGTH, _SPAN_PLACE = range(4)
"""Kinds of draws; each has its own stretch of a row's counter."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What becomes ``[MASK]``, and in which tokens; travels to the processes that read."""

    token_dropout: float
    """Probability of every token, alone."""
    span_masking: float
    """Share of tokens masked in spans."""
    mean_span_tokens: float
    """Mean length of a span, 1 to 5."""
    mask_token_id: int
    special_token_ids: tuple[int, ...]
    """Ids that stay as they are."""
    seed: int


def row_keys(seed: int, epoch: int, row_ids: IntArray, windows: IntArray) -> _UintArray:
    """Return the generator's key of each row, ``uint64 [rows]``."""
    keys = np.zeros(len(row_ids), dtype=np.uint64)
    for part in (np.uint64(seed), np.uint64(epoch), row_ids, windows):
        keys = _mix(keys + np.asarray(part).astype(np.uint64) + _GAMMA)
    return keys


def augment_rows(
    rows: Sequence[NDArray[np.int32]], keys: _UintArray, settings: Augmentation
) -> list[NDArray[np.int32]]:
    """Return the rows' ids with some of them masked, each ``int32 [seq]``, new arrays.

    Special tokens stay. Spans go over the other tokens as if the special ones between were
    not there; they do not overlap, and they mask exactly ``span_masking`` of these tokens,
    rounded up or down at random so that the mean over rows is exact. Dropout comes on top.
    What happens to a row depends on its key alone, not on the rows beside it.

    Args:
        rows: ids of each row, ``int32 [seq]`` without padding; not changed.
        keys: of each row, from :func:`row_keys`, ``uint64 [rows]``.
        settings: what to mask.
    """
    lengths = [len(row) for row in rows]
    flat = np.concatenate([np.zeros(0, dtype=np.int32), *rows])
    is_special = (flat[:, None] == np.array(settings.special_token_ids)).any(axis=1)
    open_places = np.flatnonzero(~is_special)
    row_of = np.repeat(np.arange(len(rows)), lengths)
    counts = np.bincount(row_of[open_places], minlength=len(rows))
    is_masked = np.zeros(len(open_places), dtype=np.bool_)
    if settings.span_masking:
        is_masked |= _draw_spans(keys, counts, settings)
    if settings.token_dropout:
        is_masked |= _uniform(keys, _DROPOUT, counts) < settings.token_dropout
    flat[open_places[is_masked]] = settings.mask_token_id
    ends = np.cumsum(lengths).tolist()
    return [flat[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _draw_spans(keys: _UintArray, counts: IntArray, settings: Augmentation) -> NDArray[np.bool_]:
    """Return which tokens lie in spans, row after row with ``counts`` tokens each.

    Lengths are geometric, cut at ten, as in SpanBERT (Joshi et al. 2020, section 3.1), the
    last one shortened to what is left. Where SpanBERT draws starts until enough is covered,
    the spans are put at random between the tokens that stay (as in T5, Raffel et al. 2020,
    section 3.3.4): equally many draws for every row, also where nearly all is masked.
    """
    rows = np.arange(len(keys))
    rounding = _uniform(keys, _BUDGET, np.ones(len(keys), dtype=np.int64))
    budgets = np.minimum((counts * settings.span_masking + rounding).astype(np.int64), counts)
    draws = _uniform(keys, _SPAN_LENGTH, budgets)
    lengths = 1 + np.searchsorted(_length_distribution(settings.mean_span_tokens), draws, "right")
    spent = np.cumsum(lengths) - lengths  # by the draws before, those of other rows included
    spent_before_row = np.repeat(np.append(spent, 0)[np.cumsum(budgets) - budgets], budgets)
    left = np.repeat(budgets, budgets) - (spent - spent_before_row)
    lengths = np.minimum(lengths, left)[left > 0]
    num_spans = np.bincount(np.repeat(rows, budgets)[left > 0], minlength=len(rows))
    # One place for each span and for each token that stays, in an order drawn at random.
    num_places = num_spans + counts - budgets
    row_of_place = np.repeat(rows, num_places)
    shuffled = np.lexsort((_bits(keys, _SPAN_PLACE, num_places), row_of_place))
    chosen = shuffled[_count_up(num_places) < num_spans[row_of_place]]
    widths = np.ones(len(shuffled), dtype=np.int64)
    widths[chosen] = lengths
    is_span = np.zeros(len(shuffled), dtype=np.bool_)
    is_span[chosen] = True
    return np.repeat(is_span, widths)


@cache
def _length_distribution(mean: float) -> NDArray[np.float64]:
    """Return P(length ≤ 1), ..., P(length ≤ 10) of the cut geometric with this mean.

    SpanBERT's p = 0.2 has the mean 3.8. The ratio of neighbouring probabilities is found by
    bisection; products alone, so that it is the same on every machine.
    """
    steps = np.arange(1, MAX_SPAN_TOKENS + 1)
    low, high = 0.0, 1.0
    for _ in range(50):
        ratio = (low + high) / 2
        weights = np.cumprod(np.r_[1.0, np.full(MAX_SPAN_TOKENS - 1, ratio)])
        if float((weights * steps).sum()) < mean * float(weights.sum()):
            low = ratio
        else:
            high = ratio
    distribution: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    distribution[-1] = 1.0
    return distribution


def _uniform(keys: _UintArray, kind: int, counts: IntArray) -> NDArray[np.float64]:
    """Return draws from [0, 1), row after row with ``counts`` each."""
    return (_bits(keys, kind, counts) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _bits(keys: _UintArray, kind: int, counts: IntArray) -> _UintArray:
    numbers = (_count_up(counts) + (kind * _DRAWS_OF_ONE_KIND + 1)).astype(np.uint64)
    return _mix(np.repeat(keys, counts) + numbers * _GAMMA)


def _count_up(counts: IntArray) -> IntArray:
    """Return 0, 1, ... for each row; ``[2, 3]`` -> ``[0, 1, 0, 1, 2]``."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _mix(values: _UintArray) -> _UintArray:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
