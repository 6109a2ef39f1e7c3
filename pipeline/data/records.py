"""Reads JSON Lines and Parquet: a text with a label, or a list of words with their labels."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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

_BOM = b"\xef\xbb\xbf"
_BATCH_ROWS = 1024
_UNDECODABLE = object()


def read_jsonl(
    source: SourceFile, *, text_column: str, label_column: str, has_words: bool
) -> Iterator[SourceRow | RejectedRow]:
    """Yield the rows of a JSON Lines file in order; blank lines are not rows.

    Raises:
        DataError: the file has no rows, or no row has one of the columns.
    """
    columns: set[str] = set()
    line = None
    with source.path.open("rb") as file:
        for number, content in enumerate(file, start=1):
            content = content.removeprefix(_BOM) if number == 1 else content
            if not content.strip():
                continue
            line = number
            record = _parse(content)
            if isinstance(record, RejectReason):
                shown = content.decode("utf-8", "backslashreplace").strip()
                yield reject(source.name, line, record, shown)
                continue
            columns.update(record)
            values = (record.get(text_column), record.get(label_column))
            yield _read_row(source.name, line, values, has_words=has_words)
    if line is None:
        raise no_rows(source.name, "the file is empty")
    for name in (text_column, label_column):
        if columns and name not in columns:
            raise missing_column(source.name, name, columns)


def read_parquet(
    source: SourceFile, *, text_column: str, label_column: str, has_words: bool
) -> Iterator[SourceRow | RejectedRow]:
    """Yield the rows of a Parquet file in order; ``line`` is the row's number from 1.

    Raises:
        DataError: the file is not Parquet, has no rows or lacks a column.
    """
    try:
        file = pq.ParquetFile(source.path)
    except pa.ArrowInvalid as error:
        raise DataError(f"not a Parquet file: {error}", place=source.name) from error
    with file:
        for name in (text_column, label_column):
            if name not in file.schema_arrow.names:
                raise missing_column(source.name, name, file.schema_arrow.names)
        if file.metadata.num_rows == 0:
            raise no_rows(source.name, "the file has columns and no rows")
        line = 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=[text_column, label_column]):
            texts, labels = _values(batch.column(text_column)), _values(batch.column(label_column))
            for values in zip(texts, labels, strict=True):
                line += 1
                yield _read_row(source.name, line, values, has_words=has_words)


def _parse(content: bytes) -> Mapping[str, Any] | RejectReason:
    try:
        record = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        return RejectReason.UNDECODABLE
    except (ValueError, RecursionError):
        return RejectReason.BROKEN_JSON
    return record if isinstance(record, dict) else RejectReason.NOT_AN_OBJECT


def _values(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _UNDECODABLE


def _read_row(
    file: str, line: int, values: tuple[Any, Any], *, has_words: bool
) -> SourceRow | RejectedRow:
    text, label = values
    if text is _UNDECODABLE or label is _UNDECODABLE:
        return reject(file, line, RejectReason.UNDECODABLE, "")
    if text is None:
        return reject(file, line, RejectReason.TEXT_MISSING, label)
    if has_words:
        return _read_words(file, line, text, label)
    if not isinstance(text, str):
        return reject(file, line, RejectReason.TEXT_NOT_STRING, text)
    read = label_text(label)
    if isinstance(read, RejectReason):
        return reject(file, line, read, label if read is not RejectReason.LABEL_MISSING else text)
    if not is_decodable((read,)):
        return reject(file, line, RejectReason.UNDECODABLE, label)
    return SourceRow(file=file, line=line, text=text, labels=(read,))


def _read_words(file: str, line: int, words: Any, labels: Any) -> SourceRow | RejectedRow:
    if labels is None:
        return reject(file, line, RejectReason.LABEL_MISSING, words)
    if not isinstance(words, list) or not isinstance(labels, list) or len(words) != len(labels):
        return reject(file, line, RejectReason.WORDS_NOT_ALIGNED, (words, labels))
    if not all(isinstance(word, str) for word in words):
        return reject(file, line, RejectReason.TEXT_NOT_STRING, words)
    read = [label_text(label) for label in labels]
    for label in read:
        if isinstance(label, RejectReason):
            return reject(file, line, label, labels)
    if not is_decodable(read):
        return reject(file, line, RejectReason.UNDECODABLE, labels)
    return SourceRow(file=file, line=line, words=tuple(words), labels=tuple(read))
