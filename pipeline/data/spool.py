"""Rows on disk between the two passes: written once in order, read again block by block."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from pipeline.contract.batching import IntArray


class SpoolWriter:
    """Appends tables to one Arrow IPC file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Open the file; its folder must exist."""
        self._path = path
        self._schema = schema
        self._starts = [0]
        self._num_bytes: list[int] = []
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)

    def append(self, table: pa.Table) -> None:
        """Write the table's rows, each of its chunks as a block of its own."""
        for batch in table.select(self._schema.names).to_batches():
            if batch.num_rows:
                self._writer.write_batch(batch)
                self._starts.append(self._starts[-1] + batch.num_rows)
                self._num_bytes.append(batch.nbytes)

    def close(self) -> "Spool":
        """Finish the file and return it for reading."""
        self._writer.close()
        self._sink.close()
        return Spool(self._path, np.array(self._starts, dtype=np.int64), self._num_bytes)

    def __enter__(self) -> "SpoolWriter":
        """Return self; the block must call :meth:`close`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up the file when the block fails."""
        if error is not None:
            self._sink.close()


class Spool:
    """A finished spool.

    Blocks are read, not mapped: mapped pages count as memory of the process, and the peak
    would grow with the rows.
    """

    def __init__(self, path: Path, starts: IntArray, num_bytes: Sequence[int]) -> None:
        """Use :meth:`SpoolWriter.close`.

        Args:
            path: the file.
            starts: first row of each block and the number of all rows, ``int64 [blocks + 1]``.
            num_bytes: memory of each block.
        """
        self.path = path
        self.starts = starts
        self.num_bytes = num_bytes
        self._reader = BlockReader(path)

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        return int(self.starts[-1])

    def blocks(self) -> Iterator[tuple[slice, pa.RecordBatch]]:
        """Yield every block in order with the positions of its rows."""
        for block, (begin, end) in enumerate(pairwise(self.starts.tolist())):
            yield slice(begin, end), self._reader.read(block)

    def take(self, column: str, rows: IntArray) -> pa.ChunkedArray:
        """Return a column's values at these positions, which must ascend."""
        blocks = np.searchsorted(self.starts, rows, side="right") - 1
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        chunks = [
            self._reader.read(int(blocks[begin]))
            .column(column)
            .take(pa.array(rows[begin:end] - self.starts[blocks[begin]]))
            for begin, end in pairwise([0, *cuts.tolist(), len(rows)])
            if end > begin
        ]
        return pa.chunked_array(chunks, type=self._reader.schema.field(column).type)


class BlockReader:
    """Reads single blocks of a spool file; the last one read is kept."""

    def __init__(self, path: Path) -> None:
        """Open the file and read its footer.

        Raises:
            FileNotFoundError: it is not there.
        """
        self._reader = pa.ipc.open_file(pa.OSFile(str(path), "rb"))
        self._kept: tuple[int, pa.RecordBatch] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the blocks."""
        return self._reader.schema

    def read(self, block: int) -> pa.RecordBatch:
        """Return a block by its position."""
        if self._kept is None or self._kept[0] != block:
            self._kept = (block, self._reader.get_batch(block))
        return self._kept[1]
