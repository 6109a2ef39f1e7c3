"""Multi-label texts beside their true labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.label_sets import BoolArray, given_labels
from pipeline.contract.shards import ShardSplit
from pipeline.multi_label_quality import exact_matches, join_rows, pool_labels, score_labels
from pipeline.quality import ClassScore, FloatArray, labels_of, mean_f1

_NO_LABEL = "(no label)"


@dataclass(frozen=True, kw_only=True)
class ScoredSets:
    """Every row of a split with all its labels, in row order."""

    true: BoolArray
    """bool ``[rows, num_labels]``."""
    scores: NDArray[np.float64]
    """float64 ``[rows, num_labels]``, 0 to 1."""

    @property
    def given(self) -> BoolArray:
        """The model's labels, bool ``[rows, num_labels]``."""
        return given_labels(self.scores)

    @property
    def rows(self) -> IntArray:
        """int64 ``[rows]``: every row is one position."""
        return np.arange(len(self.true), dtype=np.int64)

    @property
    def positions(self) -> IntArray:
        """int64 ``[rows]``, all 0."""
        return np.zeros(len(self.true), dtype=np.int64)

    @property
    def is_right(self) -> BoolArray:
        """Whether no label is missing and none is too many, bool ``[rows]``."""
        return exact_matches(self.true, self.given)

    @property
    def confidence(self) -> NDArray[np.float64]:
        """float64 ``[rows]``: how sure the model was of the surest label it got wrong.

        A label left out is as sure as its score is low; a row that is right has 0.
        """
        of_decisions = np.where(self.given, self.scores, 1.0 - self.scores)
        wrong = np.where(self.true == self.given, 0.0, of_decisions)
        return np.asarray(wrong.max(axis=1), dtype=np.float64)

    @property
    def per_class(self) -> list[ClassScore]:
        """Precision, recall and F1 of every label."""
        return score_labels(self.true, self.given)

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the labels that are true or given anywhere."""
        return mean_f1(self.per_class)

    @property
    def micro_f1(self) -> float:
        """F1 of the decisions on all labels together."""
        return pool_labels(self.true, self.given).f1

    def answers(self) -> tuple[NDArray[np.float64], BoolArray]:
        """Return score and rightness of every label given, ``[answers]``.

        The many labels that are easily left out would hide how sure the others are.
        """
        given = self.given
        return self.scores[given], self.true[given]

    def select(self, is_inside: BoolArray) -> "ScoredSets":
        """Return the rows that are marked in ``[rows]``."""
        return ScoredSets(true=self.true[is_inside], scores=self.scores[is_inside])

    def name_true(self, place: int, labels: Sequence[str]) -> str:
        """Return a row's labels, joined by commas."""
        return _join(self.true[place], labels)

    def name_predicted(self, place: int, labels: Sequence[str]) -> str:
        """Return the labels that the model gave a row, joined by commas."""
        return _join(self.given[place], labels)


def score_sets(split: ShardSplit, logits: Sequence[FloatArray], *, num_labels: int) -> ScoredSets:
    """Return scores and labels of all rows.

    Raises:
        ValueError: logits and rows do not match, or there are none.
    """
    scores, true = join_rows(logits, labels_of(split), num_labels)
    return ScoredSets(true=true, scores=scores)


def _join(flags: BoolArray, labels: Sequence[str]) -> str:
    return ", ".join(labels[index] for index in np.flatnonzero(flags).tolist()) or _NO_LABEL
