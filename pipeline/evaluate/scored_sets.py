"""Multi-label texts beside their true labels, and the figures that follow."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.label_sets import BoolArray, given_labels
from pipeline.contract.shards import ShardSplit
from pipeline.multi_label_quality import exact_matches, join_rows, pool_labels, score_labels
from pipeline.quality import FloatArray, labels_of, mean_f1, wilson_interval

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


def measure_sets(scored: ScoredSets, labels: Sequence[str]) -> dict[str, Any]:
    """Return the fields of :func:`pipeline.evaluate.measure.measure_quality` and ``micro_f1``.

    ``accuracy`` is exact match. There is no confusion matrix (a missing label has no wrong
    one to stand against) and no calibration error (it would be that of the many labels that
    are easily left out): both are None.
    """
    classes = score_labels(scored.true, scored.given)
    hits, count = int(scored.is_right.sum()), len(scored.true)
    return {
        "scored": count,
        "accuracy": hits / count,
        "accuracy_95": list(wilson_interval(hits, count)),
        "micro_f1": pool_labels(scored.true, scored.given).f1,
        "macro_f1": mean_f1(classes),
        "calibration_error": None,
        "per_class": [
            {"label": name, **asdict(score)} for name, score in zip(labels, classes, strict=True)
        ],
        "confusion": None,
    }


def _join(flags: BoolArray, labels: Sequence[str]) -> str:
    return ", ".join(labels[index] for index in np.flatnonzero(flags).tolist()) or _NO_LABEL
