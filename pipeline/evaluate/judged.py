"""What every task's answers have in common for measuring them."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.label_sets import BoolArray
from pipeline.quality import ClassScore

Numbers = NDArray[np.float64]


class Judged(Protocol):
    """Answers beside what is true, whatever the task; position by position."""

    @property
    def rows(self) -> IntArray:
        """int64 ``[n]``: the row that the position belongs to."""
        ...

    @property
    def positions(self) -> IntArray:
        """int64 ``[n]``: the position within its row, 0 for a text."""
        ...

    @property
    def is_right(self) -> BoolArray:
        """Whether the answer is right, bool ``[n]``."""
        ...

    @property
    def confidence(self) -> Numbers:
        """float64 ``[n]``, 0 to 1: how sure the model was of its answer."""
        ...

    @property
    def per_class(self) -> list[ClassScore]:
        """Every label against all others."""
        ...

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the classes."""
        ...

    @property
    def micro_f1(self) -> float | None:
        """F1 of all label decisions together; None where a position has one label."""
        ...

    def answers(self) -> tuple[Numbers, BoolArray]:
        """Return confidence and rightness of what calibration is measured on, ``[answers]``."""
        ...

    def select(self, is_inside: BoolArray) -> "Judged":
        """Return the positions that are marked in ``[n]``."""
        ...

    def name_true(self, place: int, labels: Sequence[str]) -> str:
        """Return the true answer at a place of ``[n]``, for people."""
        ...

    def name_predicted(self, place: int, labels: Sequence[str]) -> str:
        """Return the model's answer at a place of ``[n]``, for people."""
        ...
