"""Reads labels and splits as they stand in a file: text, numbers or booleans, one or several."""

from collections.abc import Sequence
from typing import Any

from pipeline.config import Task
from pipeline.data.rows import RejectReason

_KINDS = {str: "text", bool: "boolean", int: "number", float: "number"}
_SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "eval": "validation",
    "test": "test",
    "testing": "test",
}


class LabelReader:
    """Reads the labels of one file; all are of the kind (text, number, boolean) of the first.

    The first readable label in the file's order sets the kind; labels of rows that are
    rejected for their text are not looked at. So ``1`` and ``"1"`` never become one class
    by accident.
    """

    def __init__(self, task: Task, separator: str | None) -> None:
        """Start a file.

        Args:
            task: says whether a text has one label or a list.
            separator: splits a text that stands where a list is expected.
        """
        self._is_multi = task is Task.MULTI_LABEL
        self._separator = separator
        self._kind: str | None = None

    def read(self, value: Any) -> tuple[str, ...] | RejectReason:
        """Return the labels of a text: one, or for multi-label any number, sorted, each once."""
        if not self._is_multi:
            label = self._read_one(value)
            return label if isinstance(label, RejectReason) else (label,)
        if value is None:
            return RejectReason.LABEL_MISSING
        if isinstance(value, str) and self._separator is not None:
            value = split_labels(value, self._separator)
        if not isinstance(value, list):
            return RejectReason.LABEL_NOT_LIST
        labels = self.read_each(value)
        return labels if isinstance(labels, RejectReason) else tuple(sorted(set(labels)))

    def read_each(self, values: Sequence[Any]) -> tuple[str, ...] | RejectReason:
        """Return one label for each value, in order, or why the first bad one is none."""
        labels = []
        for value in values:
            label = self._read_one(value)
            if isinstance(label, RejectReason):
                return label
            labels.append(label)
        return tuple(labels)

    def _read_one(self, value: Any) -> str | RejectReason:
        """Return a label as text: ``" pos "`` -> ``"pos"``, ``1.0`` -> ``"1"``, True -> ``"true"``.

        A number with a fraction is a score or a gap (NaN), never the name of a class.
        """
        if value is None:
            return RejectReason.LABEL_MISSING
        kind = _KINDS.get(type(value))
        if kind is None:
            return RejectReason.LABEL_NOT_SCALAR
        if isinstance(value, float):
            if not value.is_integer():
                return RejectReason.LABEL_OTHER_TYPE
            value = int(value)
        label = value.strip() if isinstance(value, str) else str(value).lower()
        if not label:
            return RejectReason.LABEL_MISSING
        if self._kind is None:
            self._kind = kind
        return label if kind == self._kind else RejectReason.LABEL_OTHER_TYPE


def split_labels(field: str, separator: str | None) -> list[str]:
    """Return the labels in a field, without the spaces around them; empty ones are none.

    Example: ``"a | b|"`` by ``"|"`` -> ``["a", "b"]``; by None -> ``["a | b|"]``.
    """
    parts = [field] if separator is None else field.split(separator)
    return [label for part in parts if (label := part.strip())]


def read_split(value: Any) -> str | None:
    """Return the split that a value of the split column names, in any case; None for no split.

    Example: ``"Dev"`` -> ``"validation"``, ``"holdout"`` -> None.
    """
    return _SPLITS.get(value.strip().lower()) if isinstance(value, str) else None
