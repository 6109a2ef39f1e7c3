"""Reads CSV and TSV: quotes, embedded newlines, either line ending, with or without BOM."""

import csv
from collections import deque
from collections.abc import Iterator
from typing import TextIO

from pipeline.contract.errors import DataError
from pipeline.data.rows import (
    RejectedRow,
    RejectReason,
    SourceRow,
    is_decodable,
    label_text,
    missing_column,
    no_rows,
    reject,
)
from pipeline.data.sources import SourceFile

_MAX_FIELD_CHARS = 2**31 - 1
_DELIMITERS = {"csv": ",", "tsv": "\t"}


def read_delimited(
    source: SourceFile, *, text_column: str, label_column: str
) -> Iterator[SourceRow | RejectedRow]:
    """Yield the rows of a CSV or TSV file in order; blank lines are not rows.

    A record with a stray quote is rejected by its first line alone, and reading goes on
    with the next one: an unclosed quote never swallows the rows below it.

    Raises:
        DataError: the file is empty, has only a header, or lacks a column.
    """
    csv.field_size_limit(_MAX_FIELD_CHARS)  # The default refuses texts over 131,072 characters.
    with source.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        records = _read_records(file, _DELIMITERS[source.format])
        header = next(records, None)
        if header is None:
            raise no_rows(source.name, "the file is empty")
        columns = header[1]
        if columns is None:
            raise DataError("the header has a stray quote", place=f"{source.name}:{header[0]}")
        text_at = _position(columns, text_column, source.name)
        label_at = _position(columns, label_column, source.name)
        line = None
        for line, fields in records:
            if fields is None or len(fields) != len(columns):
                yield _reject_shape(source.name, line, fields)
            else:
                yield _read_row(source.name, line, fields[text_at], fields[label_at])
        if line is None:
            raise no_rows(source.name, "the file has a header and no rows")


def _position(columns: list[str], name: str, file: str) -> int:
    if name not in columns:
        raise missing_column(file, name, columns)
    if columns.count(name) > 1:
        raise DataError(f"the column {name!r} stands twice", place=file, remedy="Rename one.")
    return columns.index(name)


def _reject_shape(file: str, line: int, fields: list[str] | None) -> RejectedRow:
    if fields is None:
        return reject(file, line, RejectReason.BROKEN_QUOTES, "")
    return reject(file, line, RejectReason.WRONG_COLUMN_COUNT, fields)


def _read_row(file: str, line: int, text: str, label: str) -> SourceRow | RejectedRow:
    if not is_decodable((text, label)):
        return reject(file, line, RejectReason.UNDECODABLE, text)
    read = label_text(label)
    if isinstance(read, RejectReason):
        return reject(file, line, read, label)
    return SourceRow(file=file, line=line, text=text, labels=(read,))


class _Lines:
    """Physical lines that can be given back, so that a stray quote costs one line only."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._returned: deque[str] = deque()
        self._taken: list[str] = []
        self.number = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else next(self._file)
        self._taken.append(line)
        self.number += 1
        return line

    def begin_record(self) -> None:
        self._taken.clear()

    def give_back_all_but_first(self) -> None:
        self._returned.extendleft(reversed(self._taken[1:]))
        self.number -= len(self._taken) - 1
        self._taken.clear()


def _read_records(file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str] | None]]:
    """Yield each record's first line number and fields, None for fields with broken quotes."""
    lines = _Lines(file)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        first_line = lines.number + 1
        lines.begin_record()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            lines.give_back_all_but_first()
            yield first_line, None
            continue
        if fields:
            yield first_line, fields
