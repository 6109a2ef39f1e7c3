"""Drives the second pass: token rows go to a spool, their lengths stay in memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.config import JobConfig
from pipeline.contract.shards import SPLITS
from pipeline.contract.tokenization import TextEncoder
from pipeline.data.intake import SelectedRows
from pipeline.data.label_counts import check_labels, check_no_label_lost, count_labels
from pipeline.data.rows import RejectReason
from pipeline.data.screen import Advance
from pipeline.data.spool import Spool, SpoolWriter
from pipeline.data.tokenise import TOKEN_SCHEMA, Fit, TokenPass, TokenRecipe, divide_work


@dataclass(frozen=True, kw_only=True)
class TokenRows:
    """The rows that go into the shards, in the order of their texts; 6 bytes each in memory."""

    spool: Spool
    """Of :data:`pipeline.data.tokenise.TOKEN_SCHEMA`."""
    lengths: NDArray[np.int32]
    """Tokens of each row."""
    split: NDArray[np.int8]
    """Position in ``SPLITS``."""
    fit: NDArray[np.int8]
    num_windowed: int
    """Texts that became several rows."""

    def lengths_of(self, split: str) -> NDArray[np.int32]:
        """Return the tokens of each row of a split."""
        return np.asarray(self.lengths[self.split == SPLITS.index(split)], dtype=np.int32)

    def counts(self) -> dict[str, int]:
        """Return what was done with over-long texts, for the manifest's ``rows``."""
        return {
            "truncated": int((self.fit == Fit.TRUNCATED).sum()),
            "windowed": self.num_windowed,
            "windows": int((self.fit == Fit.WINDOW).sum()),
        }


def tokenise_rows(
    job: JobConfig,
    selected: SelectedRows,
    encoder: TextEncoder,
    *,
    spool_path: Path,
    tokenise: TokenPass,
    advance: Advance,
) -> TokenRows:
    """Tokenise the kept rows; those rejected as too long are taken out of ``selected``.

    Args:
        job: the job.
        selected: the rows.
        encoder: tokenizer and settings.
        spool_path: file for the token rows.
        tokenise: the pass over the texts.
        advance: is told the texts done.

    Raises:
        DataError: the rejection of too long texts left a split or label without rows.
        FolderError: the tokenizer cannot part the texts of a pair.
        ConfigError: ``data.window_stride`` fills whole windows.
    """
    if job.data.text_pair_column is not None:
        encoder.demand_pairs()
    recipe = TokenRecipe(
        spool=selected.spool.path,
        tokenizer_json=encoder.to_json(),
        settings=encoder.settings,
        task=job.task,
        labels=tuple(selected.labels),
        has_pairs=job.data.text_pair_column is not None,
        on_too_long=job.data.on_too_long,
        window_stride=job.data.window_stride,
    )
    works = divide_work(selected.spool, selected.facts.split)
    parts: list[tuple[NDArray[np.int32], NDArray[np.int8], NDArray[np.int8]]] = []
    num_windowed = 0
    with SpoolWriter(spool_path, TOKEN_SCHEMA) as writer:
        for table in tokenise(works, recipe):
            fitting = _take_out_too_long(table, selected)
            is_first = fitting.column("window").to_numpy() == 0
            fit = np.array(fitting.column("fit").to_numpy())
            num_windowed += int((is_first & (fit == Fit.WINDOW)).sum())
            parts.append((_lengths(fitting), np.array(fitting.column("split").to_numpy()), fit))
            writer.append(fitting)
            advance(int(is_first.sum()) + table.num_rows - fitting.num_rows)
        spool = writer.close()
    if job.data.on_too_long == "reject":
        _check_what_is_left(job, selected)
    lengths, split, fit = (np.concatenate(column) for column in zip(*parts, strict=True))
    return TokenRows(spool=spool, lengths=lengths, split=split, fit=fit, num_windowed=num_windowed)


def _take_out_too_long(table: pa.Table, selected: SelectedRows) -> pa.Table:
    is_too_long = table.column("fit").to_numpy() == Fit.TOO_LONG
    if not is_too_long.any():
        return table
    selected.facts.reject(table.column("row").to_numpy()[is_too_long], RejectReason.TOO_LONG)
    return table.filter(pa.array(~is_too_long))


def _check_what_is_left(job: JobConfig, selected: SelectedRows) -> None:
    found = count_labels(selected.spool, selected.facts.split)
    check_labels(found, job.task)
    check_no_label_lost(selected.labels, found)


def _lengths(table: pa.Table) -> NDArray[np.int32]:
    chunks = [np.diff(np.asarray(chunk.offsets)) for chunk in table.column("input_ids").chunks]
    return np.concatenate([np.zeros(0, dtype=np.int32), *chunks])
