"""Sorts token rows into buckets and writes them as shard files of bounded size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray, bucket_of
from pipeline.contract.shards import SHARD_SCHEMA, SPLITS
from pipeline.data.spool import Spool

_BATCH_ROWS = 2048
_BATCH_BYTES = 512 << 10
"""A record batch ends at either limit; so much waits in memory for each bucket of each split."""
_ROW_BYTES = 28
"""Of a row beside its lists and texts: row_id, window and four offsets."""
_OVERHEAD_BYTES = 2048
"""Room for what a record batch and a file add to their rows: 600 and 1,050 in pyarrow 26."""


@dataclass(frozen=True, kw_only=True)
class WrittenShards:
    """What was written."""

    files: dict[str, list[str]]
    """Split → names relative to the folder, in the order in which training reads them."""
    label_counts: dict[str, IntArray]
    """Split → how often each label id occurs, ``int64 [labels]``."""


def write_shards(
    folder: Path,
    tokens: Spool,
    texts: Spool,
    *,
    edges: IntArray,
    num_labels: int,
    max_shard_bytes: int,
) -> WrittenShards:
    """Write each split's rows, ordered by bucket and then as they came.

    The bytes follow from the rows and their order alone, not from the spools' blocks.

    Args:
        folder: gets ``SPLIT/bucket_BB_shard_NNNNN.arrow``.
        tokens: spool of :data:`pipeline.data.tokenise.TOKEN_SCHEMA`.
        texts: spool of :data:`pipeline.data.blocks.SPOOL_SCHEMA`.
        edges: upper edge of each bucket.
        num_labels: number of label ids.
        max_shard_bytes: size of a file; only a single larger row goes over it.
    """
    writers: dict[int, _BucketWriter] = {}
    counts = np.zeros((len(SPLITS), num_labels), dtype=np.int64)
    for _, block in tokens.blocks():
        split = block.column("split").to_numpy()
        counts += _count_labels(block, split, num_labels)
        keys = split * len(edges) + bucket_of(_lengths(block.column("input_ids")), edges)
        rows = _shard_rows(block, texts)
        for key in np.unique(keys).tolist():
            if key not in writers:
                name = f"{SPLITS[key // len(edges)]}/bucket_{key % len(edges):02d}"
                writers[key] = _BucketWriter(folder, name, max_shard_bytes)
            # A copy of just these rows: a slice would keep the whole block in memory.
            writers[key].append(rows.take(pa.array(np.flatnonzero(keys == key))))
    files: dict[str, list[str]] = {split: [] for split in SPLITS}
    for key in sorted(writers):
        files[SPLITS[key // len(edges)]] += writers[key].close()
    return WrittenShards(files=files, label_counts=dict(zip(SPLITS, counts, strict=True)))


def _shard_rows(block: pa.RecordBatch, texts: Spool) -> pa.RecordBatch:
    row_ids, windows = block.column("row"), block.column("window")
    is_first = windows.to_numpy() == 0
    rows = row_ids.to_numpy()[is_first]
    # Repeated in every window, the text of a 5 MB line would fill 30 GB.
    places = pa.array(np.cumsum(is_first) - 1, mask=~is_first)
    found = [texts.take(name, rows).combine_chunks() for name in ("text", "text_pair")]
    if not is_first.all():
        found = [pc.fill_null(column.take(places), "") for column in found]
    return pa.RecordBatch.from_arrays(
        [row_ids, windows, *found, block.column("input_ids"), block.column("labels")],
        schema=SHARD_SCHEMA,
    )


def _count_labels(
    block: pa.RecordBatch, split: NDArray[np.int8], num_labels: int
) -> NDArray[np.int64]:
    labels = block.column("labels")
    ids = np.asarray(labels.flatten())
    split_of_label = np.repeat(split.astype(np.int64), _lengths(labels))
    is_label = ids >= 0
    flat = split_of_label[is_label] * num_labels + ids[is_label]
    return np.bincount(flat, minlength=len(SPLITS) * num_labels).reshape(len(SPLITS), num_labels)


def _lengths(lists: pa.ListArray) -> IntArray:
    return np.diff(np.asarray(lists.offsets)).astype(np.int64)


def _row_bytes(rows: pa.RecordBatch) -> IntArray:
    """Return the bytes that each row adds to a file, ``int64 [rows]``."""
    texts = [np.asarray(pc.binary_length(rows.column(name))) for name in ("text", "text_pair")]
    lists = [4 * _lengths(rows.column(name)) for name in ("input_ids", "labels")]
    return np.asarray(sum([*texts, *lists]), dtype=np.int64) + _ROW_BYTES


class _BucketWriter:
    """Writes one bucket of one split: rows gather to record batches, these to files."""

    def __init__(self, folder: Path, name: str, max_shard_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._max_file_bytes = max_shard_bytes
        self._files: list[str] = []
        self._open: tuple[Any, Any] | None = None
        self._file_bytes = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = _OVERHEAD_BYTES

    def append(self, rows: pa.RecordBatch) -> None:
        """Take rows; the record batches do not depend on how they are cut into calls."""
        ends = np.cumsum(_row_bytes(rows))
        begin = 0
        while begin < rows.num_rows:
            before = int(ends[begin - 1]) if begin else 0
            room = min(_BATCH_BYTES, self._max_file_bytes // 4) - self._waiting_bytes
            fitting = int(np.searchsorted(ends, before + room, side="right"))
            end = min(fitting, begin + _BATCH_ROWS - self._waiting_rows)
            if end <= begin and not self._waiting:
                end = begin + 1  # A single row over the limit.
            if end > begin:
                self._waiting.append(rows.slice(begin, end - begin))
                self._waiting_rows += end - begin
                self._waiting_bytes += int(ends[end - 1]) - before
                begin = end
            if begin < rows.num_rows:
                self._flush()

    def close(self) -> Sequence[str]:
        """Write what waits and return the names of the files."""
        self._flush()
        self._close_file()
        return self._files

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._open is None or self._file_bytes + self._waiting_bytes > self._max_file_bytes:
            self._close_file()
            self._open_file()
        assert self._open is not None
        self._open[1].write_batch(pa.concat_batches(self._waiting))
        self._file_bytes += self._waiting_bytes
        self._waiting, self._waiting_rows = [], 0
        self._waiting_bytes = _OVERHEAD_BYTES

    def _open_file(self) -> None:
        name = f"{self._name}_shard_{len(self._files):05d}.arrow"
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        sink = pa.OSFile(str(path), "wb")
        self._open = (sink, pa.ipc.new_file(sink, SHARD_SCHEMA))
        self._files.append(name)
        self._file_bytes = _OVERHEAD_BYTES

    def _close_file(self) -> None:
        if self._open is not None:
            sink, writer = self._open
            writer.close()
            sink.close()
            self._open = None
