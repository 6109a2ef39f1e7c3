"""Reads JSON Lines and Parquet: texts with their labels, or lists of words with theirs."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import DataSettings, Task
from pipeline.contract.errors import DataError
from pipeline.data.columns import asked_columns, demand_distinct, demand_unique, missing_column
from pipeline.data.row_builder import RowBuilder
from pipeline.data.rows import RejectedRow, RejectReason, SourceRow, no_rows, reject
from pipeline.data.source_file import SourceFile

_BATCH_ROWS = 1024
_MAX_KNOWN_COLUMNS = 1000
_UNDECODABLE = object()


def read_jsonl(
    source: SourceFile, data: DataSettings, task: Task
) -> Iterator[SourceRow | RejectedRow]:
    """Yield the rows of a JSON Lines file in order; blank lines are not rows.

    Raises:
        DataError: the file cannot be read, has no rows, or no row has one of the columns.
    """
    asked = asked_columns(data)
    demand_distinct(asked, source.name)
    unseen = set(asked.values())
    known: dict[str, None] = {}
    names = (data.text_column, data.label_column, data.text_pair_column, data.split_column)
    text_name, label_name, pair_name, split_name = names
    build = RowBuilder(source, data, task).build
    # Lines are decoded one by one, and a byte order mark stands before the first alone.
    mark, codec = (BOM_UTF8, "utf-8") if source.codec == "utf-8-sig" else (b"", source.codec)
    line = None
    with source.open_binary() as file:
        for number, content in enumerate(file, start=1):
            if number == 1:
                content = content.removeprefix(mark)
            if not content or content.isspace():
                continue
            line = number
            record = _parse(content, codec)
            if isinstance(record, RejectReason):
                shown = content.decode("utf-8", "backslashreplace").strip()
                yield reject(source.name, line, record, shown)
                continue
            if unseen:
                unseen.difference_update(record)
                if len(known) < _MAX_KNOWN_COLUMNS:
                    known.update(dict.fromkeys(record))
            yield build(
                line,
                record.get(text_name),
                record.get(label_name),
                text_pair=record.get(pair_name),
                split=record.get(split_name),
            )
    if line is None:
        raise no_rows(source.name, "the file is empty")
    for setting, name in asked.items():
        if known and name in unseen:
            raise missing_column(source.name, name, known, setting=setting)


def read_parquet(
    source: SourceFile, data: DataSettings, task: Task
) -> Iterator[SourceRow | RejectedRow]:
    """Yield the rows of a Parquet file in order; ``line`` is the row's number from 1.

    Raises:
        DataError: the file cannot be read, is not Parquet, has no rows or lacks a column.
    """
    asked = asked_columns(data)
    demand_distinct(asked, source.name)
    build = RowBuilder(source, data, task).build
    line = 0
    try:
        with source.open_binary() as content, pq.ParquetFile(content) as file:
            header = file.schema_arrow.names
            demand_unique(header, source.name)
            for setting, name in asked.items():
                if name not in header:
                    raise missing_column(source.name, name, header, setting=setting)
            if file.metadata.num_rows == 0:
                raise no_rows(source.name, "the file has columns and no rows")
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(asked.values())):
                for text, label, text_pair, split in _values(batch, data):
                    line += 1
                    if _UNDECODABLE in (text, label, text_pair, split):
                        yield reject(source.name, line, RejectReason.UNDECODABLE, "")
                    else:
                        yield build(line, text, label, text_pair=text_pair, split=split)
    except pa.ArrowException as error:
        raise DataError(
            f"not a Parquet file, or broken after row {line:,}: {error}",
            place=source.name,
            remedy="Write it again, or set data.format to what it is.",
        ) from error


def _parse(content: bytes, codec: str) -> dict[Any, Any] | RejectReason:
    try:
        record = json.loads(content.decode(codec))
    except UnicodeDecodeError:
        return RejectReason.UNDECODABLE
    except (ValueError, RecursionError):
        return RejectReason.BROKEN_JSON
    return record if isinstance(record, dict) else RejectReason.NOT_AN_OBJECT


def _values(batch: pa.RecordBatch, data: DataSettings) -> Iterator[tuple[Any, ...]]:
    """Return text, label, second text and split of each row, None where there is no column."""
    names = (data.text_column, data.label_column, data.text_pair_column, data.split_column)
    return zip(
        *(repeat(None, batch.num_rows) if n is None else _column(batch.column(n)) for n in names),
        strict=True,
    )


def _column(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _UNDECODABLE
