"""Reads CSV and TSV: quotes, embedded newlines, either line ending, columns by name or index."""

import csv
from collections import deque
from collections.abc import Iterator
from typing import TextIO

from pipeline.config import DataSettings, Task
from pipeline.contract.errors import DataError
from pipeline.data.columns import find_places
from pipeline.data.labels import split_labels
from pipeline.data.row_builder import RowBuilder
from pipeline.data.rows import RejectedRow, RejectReason, SourceRow, no_rows, reject
from pipeline.data.source_file import SourceFile

_MAX_FIELD_CHARS = 2**31 - 1
_MAX_CONTINUED_CHARS = 1 << 24
"""What a quoted field may hold after its first line, so that a stray quote stays cheap."""
_DELIMITERS = {"csv": ",", "tsv": "\t"}


def read_delimited(
    source: SourceFile, data: DataSettings, task: Task
) -> Iterator[SourceRow | RejectedRow]:
    """Yield the rows of a CSV or TSV file in order; blank lines are not rows.

    TSV differs from CSV in its delimiter alone: quotes mean the same in both. A record with
    a stray quote is rejected by its first line alone, and reading goes on with the next
    one: an unclosed quote never swallows the rows below it.

    Raises:
        DataError: the file cannot be read, is empty, has only a header, or lacks a column.
    """
    csv.field_size_limit(_MAX_FIELD_CHARS)  # The default refuses texts over 131,072 characters.
    with source.open_text(newline="") as file:
        records = _read_records(file, _DELIMITERS[source.format])
        line, header = next(records, (0, []))
        if not header:
            raise no_rows(source.name, "the file is empty")
        if isinstance(header, str):
            raise DataError(
                "the header has a stray quote",
                place=f"{source.name}:{line}",
                value=header.rstrip("\r\n"),
                remedy='Double it ("") inside quotes, or take it out.',
            )
        yield from _read_rows(records, header, source, data, task)


def _read_rows(
    records: Iterator[tuple[int, list[str] | str]],
    header: list[str],
    source: SourceFile,
    data: DataSettings,
    task: Task,
) -> Iterator[SourceRow | RejectedRow]:
    places = find_places(data, header, source.name)
    text_at, label_at, pair_at, split_at = places.text, places.label, places.text_pair, places.split
    is_multi = task is Task.MULTI_LABEL
    build = RowBuilder(source, data, task).build
    width = len(header)
    line = None
    for line, fields in records:
        if isinstance(fields, str) or len(fields) != width or fields == header:
            yield _reject_shape(source.name, line, fields, header)
            continue
        label = fields[label_at]
        yield build(
            line,
            fields[text_at],
            split_labels(label, data.label_separator) if is_multi else label,
            text_pair=None if pair_at is None else fields[pair_at],
            split=None if split_at is None else fields[split_at],
        )
    if line is None:
        raise no_rows(source.name, "the file has a header and no rows")


def _reject_shape(file: str, line: int, fields: list[str] | str, header: list[str]) -> RejectedRow:
    if isinstance(fields, str):
        return reject(file, line, RejectReason.BROKEN_QUOTES, fields.rstrip("\r\n"))
    is_header = fields == header
    reason = RejectReason.REPEATED_HEADER if is_header else RejectReason.WRONG_COLUMN_COUNT
    return reject(file, line, reason, fields)


def _read_records(file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yield each record's first line number and fields; of one with broken quotes the line."""
    taken: list[str] = []
    returned: deque[str] = deque()
    line = 1
    while True:
        reader = csv.reader(_feed(file, taken, returned), delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if fields:
                    yield line, fields
                line += len(taken)
                taken.clear()
            return
        except csv.Error:
            broken, *others = taken
            returned.extendleft(reversed(others))
            taken.clear()
        yield line, broken
        line += 1


def _feed(file: TextIO, taken: list[str], returned: deque[str]) -> Iterator[str]:
    """Yield physical lines, given-back ones first, and keep those of the record in ``taken``.

    Ends early, which the csv module reports as an error, inside a record that is too long.
    """
    while returned:
        taken.append(returned.popleft())
        yield taken[-1]
    continued_chars = 0
    for content in file:
        taken.append(content)
        if len(taken) == 1:
            continued_chars = 0
        else:
            continued_chars += len(content)
            if continued_chars > _MAX_CONTINUED_CHARS:
                return
        yield content
