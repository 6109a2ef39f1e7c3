"""Reads all source files and decides which rows go into the shards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import JobConfig
from pipeline.data.cleaning import CleanRow, clean_rows
from pipeline.data.formats import read_rows
from pipeline.data.ledger import RowLedger
from pipeline.data.rows import RejectedRow, SourceRow
from pipeline.data.selection import assign_splits, order_labels, sample_rows
from pipeline.data.sources import SourceFile
from pipeline.data.vocabulary import text_settings_of

_BAD_ROWS_NAME = "bad_rows.jsonl"


@dataclass(frozen=True, kw_only=True)
class SelectedRows:
    """The rows that go into the shards, and the account of all others."""

    rows: list[CleanRow]
    splits: list[str]
    """Split of each row."""
    labels: list[str]
    """Label names in the order of their ids."""
    ledger: RowLedger


def bad_rows_path(job: JobConfig) -> Path:
    """Return the file that lists the bad rows when there are too many to go on."""
    return Path(job.output_dir) / _BAD_ROWS_NAME


def select_rows(job: JobConfig, sources: Sequence[SourceFile]) -> SelectedRows:
    """Read, clean, sample and split the rows of the source files.

    Raises:
        DataError: a file or its rows cannot be used, or a split lacks rows or labels.
        BadRowsError: more rows are bad than ``data.max_bad_share`` allows.
    """
    data = job.data
    ledger = RowLedger(stops_at_bad_row=data.on_bad_rows == "fail")
    rows = clean_rows(
        _read_all(job, sources),
        settings=text_settings_of(job),
        label_names=data.label_names,
        ledger=ledger,
    )
    ledger.check_bad_share(data.max_bad_share, report=bad_rows_path(job))
    if data.sample_rows is not None:
        chosen = sample_rows(rows, count=data.sample_rows, seed=job.seed, task=job.task)
        taken = {row.row_id for row in chosen}
        for row in rows:
            if row.row_id not in taken:
                ledger.add_not_sampled(row.file)
        rows = chosen
    splits = assign_splits(rows, data, job.task)
    labels = order_labels(rows, list(data.label_names.values()))
    return SelectedRows(rows=rows, splits=splits, labels=labels, ledger=ledger)


def _read_all(job: JobConfig, sources: Sequence[SourceFile]) -> Iterator[SourceRow | RejectedRow]:
    for source in sources:
        yield from read_rows(source, job.data, job.task)
