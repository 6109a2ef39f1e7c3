"""What is known of every row that was read: a few numbers each, never its text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.data.blocks import NO_REASON, NO_SPLIT, REASONS
from pipeline.data.rows import RejectReason

NOT_SAMPLED = -2
"""In ``RowFacts.reason``: a good row that the sample leaves out."""
_HASHES = ("text_high", "text_low", "label_hash")


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """One entry per row read, in the order of the files: 27 bytes, 35 with a sample."""

    file_starts: IntArray
    """First row of each file and the number of all rows, ``int64 [files + 1]``."""
    text_high: NDArray[np.uint64]
    text_low: NDArray[np.uint64]
    """``text_high`` and ``text_low`` are the text's hash: equal means equal texts."""
    label_hash: NDArray[np.uint64]
    draw: NDArray[np.uint64] | None
    """The smallest are sampled; None where nothing is."""
    given_split: NDArray[np.int8]
    """Position in ``SPLITS`` where the file or a column gives it, else -1."""
    reason: NDArray[np.int8]
    """Position in ``REASONS`` for a rejected row, :data:`NOT_SAMPLED`, or -1. Changes."""
    split: NDArray[np.int8]
    """Position in ``SPLITS`` for a row that is kept, else -1. Changes."""

    @property
    def num_rows(self) -> int:
        """Return the number of rows read."""
        return len(self.reason)

    @property
    def usable(self) -> IntArray:
        """Positions of the rows that nothing speaks against so far, ``int64``, ascending."""
        return np.flatnonzero(self.reason == NO_REASON)

    def reject(self, rows: IntArray, reason: RejectReason) -> None:
        """Take rows out, for this reason."""
        self.reason[rows] = REASONS.index(reason)
        self.split[rows] = NO_SPLIT

    def file_of(self, row: int) -> int:
        """Return the position of a row's file among the sources."""
        return int(np.searchsorted(self.file_starts, row, side="right")) - 1


class FactsBuilder:
    """Gathers the facts of blocks that come in order."""

    def __init__(self, num_files: int, *, has_sample: bool) -> None:
        """Start empty.

        Args:
            num_files: source files.
            has_sample: keep the draws too.
        """
        self._rows_of_file = np.zeros(num_files, dtype=np.int64)
        names = [*_HASHES, *(["draw"] if has_sample else []), "given_split", "reason"]
        self._parts: dict[str, list[NDArray[np.generic]]] = {name: [] for name in names}

    @property
    def num_rows(self) -> int:
        """Return the rows so far."""
        return int(self._rows_of_file.sum())

    def add(self, block: pa.Table) -> None:
        """Take over a block's facts; nothing of the block is kept alive."""
        files = block.column("file").to_numpy()
        self._rows_of_file += np.bincount(files, minlength=len(self._rows_of_file))
        for name, parts in self._parts.items():
            parts.append(np.array(block.column(name).to_numpy()))

    def build(self) -> RowFacts:
        """Return the facts of all rows."""
        num_rows = self.num_rows
        columns: dict[str, Any] = {name: self._join(name) for name in list(self._parts)}
        return RowFacts(
            file_starts=np.concatenate([[0], np.cumsum(self._rows_of_file)]),
            draw=columns.pop("draw", None),
            split=np.full(num_rows, NO_SPLIT, dtype=np.int8),
            **columns,
        )

    def _join(self, name: str) -> NDArray[np.generic]:
        parts: Sequence[NDArray[np.generic]] = self._parts.pop(name)
        kind = np.int8 if name in ("given_split", "reason") else np.uint64
        return np.concatenate([np.zeros(0, dtype=kind), *parts])
