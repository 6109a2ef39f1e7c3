"""How much a second model loses on the same texts, with paired bootstrap intervals; pure numpy.

A resample draws texts with replacement and takes both models' answers to each, so that what
is hard for both cancels out (Koehn 2004, "Statistical Significance Tests for Machine
Translation Evaluation", section 4, https://aclanthology.org/W04-3250; Berg-Kirkpatrick,
Burkett and Klein 2012, "An Empirical Investigation of Statistical Significance in NLP",
section 2, https://aclanthology.org/D12-1091).

What is drawn is a text. Its words, or its windows, go together: they share subject and
author, so their mistakes come together, and drawn one by one they would pass for more
independent evidence than there is and make the interval too narrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.label_sets import BoolArray
from pipeline.export.paired_answers import PairedAnswers

_CHUNK_CELLS = 4_000_000
"""Weights held at once, 16 or 32 MB; larger chunks were no faster (2 cores, 100,000 rows)."""
_EXACT_FLOAT32 = 1 << 24
"""Float32 counts exactly up to here."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PairedDrop:
    """One figure of two models and how much the second loses."""

    first: float
    second: float
    low: float
    """Lower end of the two-sided 95 % interval of the drop."""
    high: float
    """Upper end of the two-sided 95 % interval of the drop."""
    upper: float
    """With 95 % confidence the drop is not over this (one-sided)."""
    std_error: float
    """Standard deviation of the drop over the resamples."""

    @property
    def drop(self) -> float:
        """What the second model loses; negative when it is better."""
        # Rounded: 0.9 - 0.89 is 0.010000000000000009 and must not fail a limit of 0.01.
        return round(self.first - self.second, 9)


@dataclass(frozen=True, kw_only=True)
class PairedDrops:
    """Accuracy (exact match of multi-label texts) and macro F1 of the same answers."""

    accuracy: PairedDrop
    macro_f1: PairedDrop


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """Counts of every kind of text; texts that count alike are one kind."""

    kind_of: IntArray
    """``int64 [texts]``."""
    table: NDArray[np.floating]
    """``[kinds, 3 + 4 * num_labels]``: decisions; right ones of each model; then of each
    model the labels rightly given, and of each model the labels given plus those borne."""


def measure_drops(answers: PairedAnswers, *, resamples: int, seed: int) -> PairedDrops:
    """Return how much accuracy and macro F1 the second model loses, with intervals.

    The ends are percentiles of the resamples (Efron and Tibshirani 1993, "An Introduction
    to the Bootstrap", section 13.3). With the same seed the same texts are drawn, so
    swapping the models negates drop and interval exactly. Macro F1 of a resample is over
    the classes that occur in it. A resample without any decision counts as no drop.

    Raises:
        ValueError: there are no texts, or fewer than 40 resamples, whose 2.5th percentile
            would lie below the smallest.
    """
    if answers.num_texts < 1 or resamples < 40:
        raise ValueError(f"need texts and 40 resamples: {answers.num_texts}, {resamples}")
    counts = _count_kinds(answers)
    seen = np.bincount(counts.kind_of, minlength=len(counts.table))[None]
    accuracy, macro_f1 = _score(seen, counts)
    parts = [_score(weights, counts) for weights in _draw(counts, resamples=resamples, seed=seed)]
    return PairedDrops(
        accuracy=_summarise(accuracy[:, 0], np.concatenate([part[0] for part in parts], axis=1)),
        macro_f1=_summarise(macro_f1[:, 0], np.concatenate([part[1] for part in parts], axis=1)),
    )


def _count_kinds(answers: PairedAnswers) -> _Counts:
    """Count by text; where each text is one decision, by distinct decision.

    Of 100,000 texts with one label of three at most 27 differ, which is what makes many
    resamples cheap: a resample is then a few sums over kinds.
    """
    flags = (answers.true, answers.first, answers.second)
    if np.array_equal(answers.text_of, np.arange(answers.num_texts)):
        packed = np.packbits(np.concatenate(flags, axis=1), axis=1)
        _, chosen, kind_of = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        flags = (answers.true[chosen], answers.first[chosen], answers.second[chosen])
        kind_of, group_of = kind_of.reshape(-1), np.arange(len(chosen))
        num_kinds = len(chosen)
    else:
        kind_of, group_of = np.arange(answers.num_texts), answers.text_of
        num_kinds = answers.num_texts
    decisions = np.bincount(group_of, minlength=num_kinds)
    # A resample may draw the longest text every time.
    is_small = 2 * answers.num_texts * int(decisions.max()) < _EXACT_FLOAT32
    columns = _columns(*flags)
    table = np.empty((num_kinds, len(columns)), dtype=np.float32 if is_small else np.float64)
    for place, column in enumerate(columns):
        table[:, place] = np.bincount(group_of, weights=column, minlength=num_kinds)
    return _Counts(kind_of=kind_of.astype(np.int64), table=table)


def _columns(true: BoolArray, *given: BoolArray) -> list[NDArray[np.generic]]:
    """Return what is counted of every decision, in the order of ``_Counts.table``."""
    return [
        np.ones(len(true), dtype=np.int8),
        *((true == part).all(axis=1) for part in given),
        *(column for part in given for column in (true & part).T),
        *(column for part in given for column in (true.astype(np.int8) + part).T),
    ]


def _draw(counts: _Counts, *, resamples: int, seed: int) -> Iterator[IntArray]:
    """Yield how often each kind was drawn, ``int64 [chunk, kinds]``, of bounded size."""
    rng = np.random.default_rng(seed)
    num_texts, num_kinds = len(counts.kind_of), len(counts.table)
    chunk = max(1, _CHUNK_CELLS // num_kinds)
    for start in range(0, resamples, chunk):
        drawn = (
            counts.kind_of[rng.integers(0, num_texts, num_texts, dtype=np.int32)]
            for _ in range(min(chunk, resamples - start))
        )
        yield np.stack([np.bincount(kinds, minlength=num_kinds) for kinds in drawn])


def _score(drawn: IntArray, counts: _Counts) -> tuple[Numbers, Numbers]:
    """Return accuracy and macro F1 of both models in every draw, ``[2, draws]`` each."""
    sums = (drawn.astype(counts.table.dtype) @ counts.table).astype(np.float64).T
    accuracy = sums[1:3] / np.maximum(sums[0], 1)
    hits, both = sums[3:].reshape(2, 2, -1, len(drawn))
    # Classes that are neither borne nor given have no F1 and are left out of the mean.
    f1 = 2 * hits / np.maximum(both, 1)
    macro_f1 = f1.sum(axis=1) / np.maximum((both > 0).sum(axis=1), 1)
    return accuracy, macro_f1


def _summarise(seen: Numbers, drawn: Numbers) -> PairedDrop:
    drops = np.sort(drawn[0] - drawn[1])

    def ends(share: float) -> tuple[float, float]:
        # The k-th value from either side, k = floor((B + 1) share), by the convention after
        # Efron and Tibshirani's equation 12.22: symmetric, which interpolation is not quite.
        k = int((len(drops) + 1) * share + 1e-9)
        return round(float(drops[k - 1]), 9), round(float(drops[-k]), 9)

    low, high = ends(0.025)
    return PairedDrop(
        first=float(seen[0]),
        second=float(seen[1]),
        low=low,
        high=high,
        upper=ends(0.05)[1],
        std_error=float(drops.std(ddof=1)),
    )
