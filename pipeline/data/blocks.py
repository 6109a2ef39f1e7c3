"""The rows of a file as Arrow blocks: cleaned, hashed, or with the reason of their rejection."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.contract.shards import SPLITS
from pipeline.data.cleaning import CleanRow, ReadRecipe, clean_row
from pipeline.data.formats import read_rows
from pipeline.data.rows import RejectedRow, RejectReason, SourceRow
from pipeline.data.source_file import SourceFile

BLOCK_ROWS = 4096
BLOCK_CHARS = 1 << 20
"""A block ends at either limit: a few MB at most, a single larger row excepted."""
NO_REASON = -1
NO_SPLIT = -1
REASONS = tuple(RejectReason)
SPOOLED_FIELDS = [
    pa.field("line", pa.int64(), nullable=False),
    pa.field("text", pa.string(), nullable=False),
    pa.field("text_pair", pa.string(), nullable=False),
    pa.field("labels", pa.list_(pa.string()), nullable=False),
    # What was wrong with a row that could not be used; empty for others.
    pa.field("value", pa.string(), nullable=False),
]
FACT_FIELDS = [
    # Position of the row's file among the sources.
    pa.field("file", pa.int32(), nullable=False),
    # The two halves of CleanRow.text_hash, as numbers.
    pa.field("text_high", pa.uint64(), nullable=False),
    pa.field("text_low", pa.uint64(), nullable=False),
    pa.field("label_hash", pa.uint64(), nullable=False),
    pa.field("draw", pa.uint64(), nullable=False),
    # Position in SPLITS where the file or a column gives the split, else NO_SPLIT.
    pa.field("given_split", pa.int8(), nullable=False),
    # Position in REASONS, NO_REASON for a usable row.
    pa.field("reason", pa.int8(), nullable=False),
]
SPOOL_SCHEMA = pa.schema(SPOOLED_FIELDS)
BLOCK_SCHEMA = pa.schema([*SPOOLED_FIELDS, *FACT_FIELDS])
_NO_HASHES = bytes(32)


def read_blocks(source: SourceFile, file: int, recipe: ReadRecipe) -> Iterator[pa.Table]:
    """Yield the rows of a file in order as tables of :data:`BLOCK_SCHEMA`, none of them empty.

    Args:
        source: the file.
        file: its position among the sources.
        recipe: how to read and clean.

    Raises:
        DataError: the file cannot be used.
        ConfigError: a setting or package that the file needs is missing.
    """
    block = _Block(file)
    for item in read_rows(source, recipe.data, recipe.task):
        block.add(clean_row(item, recipe) if isinstance(item, SourceRow) else item)
        if block.is_full:
            yield block.build()
            block = _Block(file)
    if block.num_rows:
        yield block.build()


class _Block:
    """Rows on their way into one table."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._lines: list[int] = []
        self._texts: list[str] = []
        self._pairs: list[str] = []
        self._labels: list[tuple[str, ...]] = []
        self._values: list[str] = []
        self._hashes: list[bytes] = []
        self._splits: list[int] = []
        self._reasons: list[int] = []
        self._num_chars = 0

    @property
    def num_rows(self) -> int:
        return len(self._lines)

    @property
    def is_full(self) -> bool:
        return self.num_rows >= BLOCK_ROWS or self._num_chars >= BLOCK_CHARS

    def add(self, row: CleanRow | RejectedRow) -> None:
        self._lines.append(row.line)
        if isinstance(row, RejectedRow):
            self._add_columns(("", "", ()), row.value)
            self._hashes.append(_NO_HASHES)
            self._splits.append(NO_SPLIT)
            self._reasons.append(REASONS.index(row.reason))
        else:
            self._add_columns((row.text, row.text_pair, row.labels), "")
            self._hashes.append(row.text_hash + row.label_hash + row.draw)
            self._splits.append(SPLITS.index(row.split) if row.split else NO_SPLIT)
            self._reasons.append(NO_REASON)
            self._num_chars += len(row.text) + len(row.text_pair) + 8 * len(row.labels)

    def _add_columns(self, content: tuple[str, str, tuple[str, ...]], value: str) -> None:
        text, pair, labels = content
        self._texts.append(text)
        self._pairs.append(pair)
        self._labels.append(labels)
        self._values.append(value)

    def build(self) -> pa.Table:
        hashes = np.frombuffer(b"".join(self._hashes), dtype=">u8").reshape(-1, 4)
        numbers = np.ascontiguousarray(hashes.T, dtype=np.uint64)
        columns = [self._lines, self._texts, self._pairs, self._labels, self._values]
        files = np.full(self.num_rows, self._file, dtype=np.int32)
        facts = [files, *numbers, self._splits, self._reasons]
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip([*columns, *facts], BLOCK_SCHEMA, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=BLOCK_SCHEMA)
