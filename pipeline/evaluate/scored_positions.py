"""Texts or words with one label each beside their true labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.contract.batching import IntArray
from pipeline.contract.label_sets import BoolArray
from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.evaluate.judged import Numbers
from pipeline.quality import (
    ClassScore,
    FloatArray,
    class_scores,
    confusion_matrix,
    join_labelled,
    labels_of,
    mean_f1,
    softmax,
)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Every labelled position (a text, or a word of it) of a split, in row order."""

    rows: IntArray
    """int64 ``[n]``: the row that the position belongs to."""
    positions: IntArray
    """int64 ``[n]``: the position within its row, 0 for a text."""
    true: IntArray
    """int64 ``[n]``."""
    predicted: IntArray
    """int64 ``[n]``."""
    probabilities: Numbers
    """float64 ``[n, num_labels]``."""

    @property
    def is_right(self) -> BoolArray:
        """Whether the answer is right, bool ``[n]``."""
        return np.asarray(self.predicted == self.true, dtype=np.bool_)

    @property
    def confidence(self) -> Numbers:
        """float64 ``[n]``: probability of the predicted label."""
        return np.asarray(self.probabilities.max(axis=-1), dtype=np.float64)

    @property
    def confusion(self) -> IntArray:
        """int64 ``[num_labels, num_labels]``: row = true label, column = predicted."""
        return confusion_matrix(self.true, self.predicted, self.probabilities.shape[1])

    @property
    def per_class(self) -> list[ClassScore]:
        """Precision, recall and F1 of every label."""
        return class_scores(self.confusion)

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the labels that are true or predicted anywhere."""
        return mean_f1(self.per_class)

    @property
    def micro_f1(self) -> None:
        """None: with one label a position it would be the accuracy again."""
        return

    def answers(self) -> tuple[Numbers, BoolArray]:
        """Return confidence and rightness of every position."""
        return self.confidence, self.is_right

    def select(self, is_inside: BoolArray) -> "Scored":
        """Return the positions that are marked in ``[n]``."""
        return Scored(
            rows=self.rows[is_inside],
            positions=self.positions[is_inside],
            true=self.true[is_inside],
            predicted=self.predicted[is_inside],
            probabilities=self.probabilities[is_inside],
        )

    def name_true(self, place: int, labels: Sequence[str]) -> str:
        """Return the label at a place."""
        return labels[int(self.true[place])]

    def name_predicted(self, place: int, labels: Sequence[str]) -> str:
        """Return the predicted label at a place."""
        return labels[int(self.predicted[place])]


def score_positions(split: ShardSplit, logits: Sequence[FloatArray]) -> Scored:
    """Return predictions and labels of all labelled positions.

    Raises:
        ValueError: logits and rows do not match, or nothing is labelled.
    """
    labels = labels_of(split)
    scores, true = join_labelled(logits, labels)
    places = [np.flatnonzero(row != IGNORED_LABEL) for row in labels]
    return Scored(
        rows=np.repeat(np.arange(len(labels)), [len(place) for place in places]),
        positions=np.concatenate(places).astype(np.int64),
        true=true,
        predicted=scores.argmax(axis=-1).astype(np.int64),
        probabilities=softmax(scores),
    )
