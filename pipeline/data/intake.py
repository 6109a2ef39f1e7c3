"""The first pass: reads all source files and decides which rows go into the shards."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipeline.config import JobConfig, Task
from pipeline.contract.batching import IntArray
from pipeline.data.blocks import REASONS, SPOOL_SCHEMA
from pipeline.data.cleaning import ReadRecipe
from pipeline.data.label_counts import check_labels, count_labels, order_labels
from pipeline.data.ledger import RowLedger, bad_row_error, first_bad
from pipeline.data.row_facts import FactsBuilder, RowFacts
from pipeline.data.rows import RejectedRow
from pipeline.data.screen import Advance
from pipeline.data.selection import (
    Pools,
    assign_splits,
    label_pools,
    reject_duplicates,
    sample_rows,
)
from pipeline.data.source_file import SourceFile
from pipeline.data.spool import Spool, SpoolWriter
from pipeline.data.vocabulary import text_settings_of

ReadPass = Callable[[Sequence[SourceFile], ReadRecipe], Iterator[pa.Table]]
"""Yields the tables of :func:`pipeline.data.blocks.read_blocks` of all files, in their order."""
_BAD_ROWS_NAME = "bad_rows.jsonl"


@dataclass(frozen=True, kw_only=True)
class SelectedRows:
    """All rows read: what is known of each, where their texts are, and the labels."""

    facts: RowFacts
    """With reason or split for every row."""
    spool: Spool
    """Of :data:`pipeline.data.blocks.SPOOL_SCHEMA`."""
    ledger: RowLedger
    labels: list[str]
    """Label names in the order of their ids."""

    @property
    def num_kept(self) -> int:
        """Return the number of rows that have a split."""
        return int((self.facts.split >= 0).sum())


def bad_rows_path(job: JobConfig) -> Path:
    """Return the file that lists the bad rows when there are too many to go on."""
    return Path(job.output_dir) / _BAD_ROWS_NAME


def select_rows(
    job: JobConfig,
    sources: Sequence[SourceFile],
    *,
    spool_path: Path,
    read: ReadPass,
    advance: Advance,
) -> SelectedRows:
    """Read and clean the rows of the source files, then sample and split them.

    Args:
        job: the job.
        sources: its files.
        spool_path: file for the cleaned texts; memory holds a few numbers of each row.
        read: the pass over the files.
        advance: is told the rows read.

    Raises:
        DataError: a file or its rows cannot be used, or a split lacks rows or labels.
        BadRowsError: more rows are bad than ``data.max_bad_share`` allows.
    """
    data = job.data
    facts, spool = _read_all(job, sources, spool_path, read, advance)
    reject_duplicates(facts)
    ledger = RowLedger(facts, spool, [source.name for source in sources])
    ledger.check_bad_rows(
        max_bad_share=data.max_bad_share,
        fails=data.on_bad_rows == "fail",
        report=bad_rows_path(job),
    )
    if data.sample_rows is not None:
        pools = _pools(job, facts, spool, is_pooled=job.task is not Task.TOKEN)
        sample_rows(facts, count=data.sample_rows, pools=pools)
    pools_to_split = _pools(job, facts, spool, is_pooled=True) if data.stratify else None
    assign_splits(facts, data, pools=pools_to_split)
    found = count_labels(spool, facts.split)
    check_labels(found, job.task)
    labels = order_labels(list(found.counts), list(data.label_names.values()))
    return SelectedRows(facts=facts, spool=spool, ledger=ledger, labels=labels)


def _read_all(
    job: JobConfig,
    sources: Sequence[SourceFile],
    spool_path: Path,
    read: ReadPass,
    advance: Advance,
) -> tuple[RowFacts, Spool]:
    recipe = ReadRecipe(data=job.data, task=job.task, settings=text_settings_of(job), seed=job.seed)
    facts = FactsBuilder(len(sources), has_sample=job.data.sample_rows is not None)
    with SpoolWriter(spool_path, SPOOL_SCHEMA) as writer:
        for block in read(sources, recipe):
            if job.data.on_bad_rows == "fail":
                _stop_at_bad_row(block, sources)
            facts.add(block)
            writer.append(block)
            advance(block.num_rows)
        return facts.build(), writer.close()


def _stop_at_bad_row(block: pa.Table, sources: Sequence[SourceFile]) -> None:
    row = first_bad(block.column("reason").to_numpy())
    if row is not None:
        found = block.slice(row, 1).to_pylist()[0]
        raise bad_row_error(
            RejectedRow(
                file=sources[found["file"]].name,
                line=found["line"],
                reason=REASONS[found["reason"]],
                value=found["value"],
            )
        )


def _pools(job: JobConfig, facts: RowFacts, spool: Spool, *, is_pooled: bool) -> Pools:
    rows = facts.usable
    if not is_pooled:
        return Pools(pool=rows * 0, names=[""])

    def read_labels(chosen: IntArray) -> list[list[str]]:
        return list(spool.take("labels", chosen).to_pylist())

    return label_pools(facts, rows, read_labels)
