"""Chooses the reader of a file by its format and the task."""

from collections.abc import Iterator

from pipeline.config import DataSettings, Task
from pipeline.contract.errors import DataError
from pipeline.data.conll import read_conll
from pipeline.data.delimited import read_delimited
from pipeline.data.records import read_jsonl, read_parquet
from pipeline.data.rows import RejectedRow, SourceRow
from pipeline.data.source_file import SourceFile


def read_rows(
    source: SourceFile, data: DataSettings, task: Task
) -> Iterator[SourceRow | RejectedRow]:
    """Return the rows of a file in order; a row that cannot be read comes as a rejection.

    Raises:
        DataError: the file cannot be read, is empty, lacks a column, or its format cannot
            hold the task.
        ConfigError: a CoNLL column is not an index, or CoNLL is asked for a split column.
    """
    has_words = task is Task.TOKEN
    if source.format in ("csv", "tsv") and not has_words:
        return read_delimited(source, data, task)
    if source.format == "conll" and has_words:
        return read_conll(source, data)
    if source.format == "jsonl":
        return read_jsonl(source, data, task)
    if source.format == "parquet":
        return read_parquet(source, data, task)
    raise DataError(
        f"{source.format} files cannot hold rows for the task {task.value}",
        place=source.name,
        remedy="Words with labels come as conll, or as lists in jsonl or parquet; texts with "
        "labels as csv, tsv, jsonl or parquet.",
    )
