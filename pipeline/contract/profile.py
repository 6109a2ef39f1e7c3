"""The texts that a model was made with, in a few counts: what live ones are compared with."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field

from pipeline.contract.settings import Settings

NUM_CONFIDENCE_CLASSES = 10
NO_LABEL = "(none)"
"""Counted for a multi-label text that got none."""
_LENGTH_CLASSES = 10


class TrainingProfile(Settings):
    """Counts over the validation texts, with the answers of the bundle's default model.

    Validation texts come as the training texts do, and were not learned by heart, so that the
    model is as sure of them as it should be of live ones.
    """

    num_texts: int = Field(ge=0)
    length_counts: tuple[int, ...] = Field(strict=False)
    """Texts by the classes of :func:`length_edges`."""
    num_tokens: int = Field(ge=0)
    """Special tokens included, after cutting to max_seq_len."""
    num_unknown_tokens: int = Field(ge=0)
    """Of them, those that the vocabulary lacks."""
    confidence_counts: tuple[int, ...] = Field(
        strict=False, min_length=NUM_CONFIDENCE_CLASSES, max_length=NUM_CONFIDENCE_CLASSES
    )
    """Scores of the given labels, by :func:`confidence_class`."""
    label_counts: dict[str, int]
    """Given labels: of a text, of each word, or each of a multi-label text."""


def length_edges(percentiles: Sequence[int]) -> tuple[int, ...]:
    """Return the greatest lengths of all classes but the last, which has no end.

    They are the different deciles of the training texts, so that each class holds about a tenth.

    Args:
        percentiles: a manifest's ``seq_len_percentiles``, 101 of them.
    """
    step = (len(percentiles) - 1) // _LENGTH_CLASSES
    deciles = percentiles[step:-1:step]
    return tuple(sorted(set(deciles)))


def length_class(num_tokens: int, edges: Sequence[int]) -> int:
    """Return the index of a length's class, 0 to ``len(edges)``."""
    return bisect_left(edges, num_tokens)


def confidence_class(score: float) -> int:
    """Return the index of a score's class: ten equal ones from 0 to 1, which is in the last."""
    return min(int(score * NUM_CONFIDENCE_CLASSES), NUM_CONFIDENCE_CLASSES - 1)


def count_lengths(lengths: Iterable[int], edges: Sequence[int]) -> tuple[int, ...]:
    """Return how many texts are in each class of length, ``len(edges) + 1`` numbers."""
    classes = np.searchsorted(np.asarray(edges), np.fromiter(lengths, dtype=np.int64))
    return tuple(np.bincount(classes, minlength=len(edges) + 1).tolist())
