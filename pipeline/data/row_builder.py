"""Makes a row from the values that a file holds for it, or says why it is none."""

from typing import Any

from pipeline.config import DataSettings, Task
from pipeline.data.labels import LabelReader, read_split
from pipeline.data.rows import (
    RejectedRow,
    RejectReason,
    SourceRow,
    first_undecodable,
    reject,
)
from pipeline.data.source_file import SourceFile


class RowBuilder:
    """Builds the rows of one file, in its order: the first label sets the kind of all."""

    def __init__(self, source: SourceFile, data: DataSettings, task: Task) -> None:
        """Start a file."""
        self._file = source.name
        self._given_split = source.given_split
        self._labels = LabelReader(task, data.label_separator)
        self._has_words = task is Task.TOKEN
        self._has_pair = data.text_pair_column is not None
        self._has_split = data.split_column is not None

    def build(
        self, line: int, text: Any, label: Any, *, text_pair: Any = None, split: Any = None
    ) -> SourceRow | RejectedRow:
        """Return the row; its faults are looked for in text, second text, labels, split.

        Args:
            line: line or row number in the file, from 1.
            text: text, or list of words for word labels; None where the file has no value.
            label: label, list of labels, or one label for each word.
            text_pair: second text; counts only if the job has a column for it.
            split: split as the file names it; counts only if the job has a column for it.
        """
        if text is None:
            return self._reject(line, RejectReason.TEXT_MISSING, label)
        named = read_split(split) if self._has_split else self._given_split
        if self._has_words:
            row = self._build_words(line, text, label, named)
        else:
            row = self._build_text(line, text, label, text_pair, named)
        if self._has_split and named is None and isinstance(row, SourceRow):
            return self._reject(line, RejectReason.UNKNOWN_SPLIT, "" if split is None else split)
        return row

    def _build_text(
        self, line: int, text: Any, label: Any, text_pair: Any, split: str | None
    ) -> SourceRow | RejectedRow:
        if not isinstance(text, str):
            return self._reject(line, RejectReason.TEXT_NOT_STRING, text)
        if self._has_pair and not isinstance(text_pair, str):
            if text_pair is None:
                return self._reject(line, RejectReason.TEXT_MISSING, text)
            return self._reject(line, RejectReason.TEXT_NOT_STRING, text_pair)
        labels = self._labels.read(label)
        if isinstance(labels, RejectReason):
            is_missing = labels is RejectReason.LABEL_MISSING
            return self._reject(line, labels, text if is_missing else label)
        broken = first_undecodable((text, text_pair or "", *labels))
        if broken is not None:
            return self._reject(line, RejectReason.UNDECODABLE, broken)
        return SourceRow(
            file=self._file, line=line, text=text, text_pair=text_pair, split=split, labels=labels
        )

    def _build_words(
        self, line: int, words: Any, labels: Any, split: str | None
    ) -> SourceRow | RejectedRow:
        if labels is None:
            return self._reject(line, RejectReason.LABEL_MISSING, words)
        if not isinstance(words, list) or not isinstance(labels, list) or len(words) != len(labels):
            return self._reject(line, RejectReason.WORDS_NOT_ALIGNED, (words, labels))
        if not all(isinstance(word, str) for word in words):
            return self._reject(line, RejectReason.TEXT_NOT_STRING, words)
        read = self._labels.read_each(labels)
        if isinstance(read, RejectReason):
            return self._reject(line, read, labels)
        broken = first_undecodable((*words, *read))
        if broken is not None:
            return self._reject(line, RejectReason.UNDECODABLE, broken)
        return SourceRow(file=self._file, line=line, words=tuple(words), split=split, labels=read)

    def _reject(self, line: int, reason: RejectReason, value: Any) -> RejectedRow:
        return reject(self._file, line, reason, value)
