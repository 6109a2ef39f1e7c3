"""The shards folder: Arrow IPC files by split and bucket, memory-mapped, with a manifest."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import FolderError, SchemaVersionError
from pipeline.contract.folder import read_manifest, verify_files
from pipeline.contract.tokenization import IGNORED_LABEL, TextSettings

SHARDS_SCHEMA_VERSION = 2
SPLITS = ("train", "validation", "test")
SHARD_SCHEMA = pa.schema(
    [
        # Position of the row in the source files, counted over all of them; with the window it
        # is the row's identity.
        pa.field("row_id", pa.int64(), nullable=False),
        # Which part of an over-long text, from 0; 0 for a text that is whole or cut off.
        pa.field("window", pa.int32(), nullable=False),
        # Empty in windows after the first, which has the whole text.
        pa.field("text", pa.string(), nullable=False),
        # Second text of a pair, empty for single texts.
        pa.field("text_pair", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        # One entry for a text, any number for multi-label; one for each token (-100 where no
        # word starts) for token labels.
        pa.field("labels", pa.list_(pa.int32()), nullable=False),
    ]
)


class ShardSplit:
    """The rows of one split, memory-mapped; row ``i`` is the same on every machine."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Map the files; of the rows nothing is read.

        Raises:
            pyarrow.ArrowInvalid: a file is no shard.
        """
        self._batches = [batch for path in paths for batch in _map_batches(path)]
        self._starts = [0, *accumulate(batch.num_rows for batch in self._batches)]
        self._ids = _ListColumn(self._batches, "input_ids")
        self._labels = _ListColumn(self._batches, "labels")

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._starts[-1])

    @property
    def lengths(self) -> IntArray:
        """Tokens of every row, ``int64 [rows]``; only the offsets are read."""
        return self._ids.lengths()

    @property
    def row_ids(self) -> IntArray:
        """Which row of the source files every row is from, ``int64 [rows]``."""
        return self._numbers("row_id")

    @property
    def windows(self) -> IntArray:
        """Which part of its text every row is, ``int64 [rows]``; mostly 0."""
        return self._numbers("window")

    @property
    def labels_per_row(self) -> IntArray:
        """Entries in the labels of every row, ``int64 [rows]``; -100 counts as one."""
        return self._labels.lengths()

    def label_counts(self, num_labels: int) -> IntArray:
        """Return how often each label stands in the rows, ``int64 [num_labels]``; no -100.

        Raises:
            FolderError: a row has a label that is not below ``num_labels``.
        """
        counts = np.zeros(num_labels, dtype=np.int64)
        for batch in self._batches:
            found = np.asarray(batch.column("labels").flatten().to_numpy(), dtype=np.int64)
            found = found[found != IGNORED_LABEL]
            if len(found) and not 0 <= found.min() <= found.max() < num_labels:
                raise FolderError(
                    f"a row has a label that is not one of the {num_labels} of the manifest",
                    value=int(found.min() if found.min() < 0 else found.max()),
                )
            counts += np.bincount(found, minlength=num_labels)
        return counts

    def input_ids(self, index: int) -> NDArray[np.int32]:
        """Token ids of a row, ``int32 [seq]``, a view of the mapped file."""
        return self._ids.row(*self._locate(index))

    def labels(self, index: int) -> NDArray[np.int32]:
        """Labels of a row: ``int32 [1]``, any number (multi-label), or ``[seq]`` (token labels)."""
        return self._labels.row(*self._locate(index))

    def text(self, index: int) -> str:
        """Return the cleaned text of a row (words joined by spaces for token labels).

        It is empty in windows after the first, which has the whole text.
        """
        which, row = self._locate(index)
        return str(self._batches[which].column("text")[row].as_py())

    def text_pair(self, index: int) -> str:
        """Return the cleaned second text of a pair; empty for single texts."""
        which, row = self._locate(index)
        return str(self._batches[which].column("text_pair")[row].as_py())

    def _locate(self, index: int) -> tuple[int, int]:
        if not 0 <= index < self._starts[-1]:
            raise IndexError(f"row {index} of {len(self)}")
        which = bisect_right(self._starts, index) - 1
        return which, index - self._starts[which]

    def _numbers(self, name: str) -> IntArray:
        columns = [batch.column(name).to_numpy() for batch in self._batches]
        return np.concatenate([np.zeros(0, dtype=np.int64), *columns]).astype(np.int64)


class _ListColumn:
    """A column of lists as numpy views; those of a record batch are made when first asked for."""

    def __init__(self, batches: Sequence[pa.RecordBatch], name: str) -> None:
        self._columns = [batch.column(name) for batch in batches]
        self._views: list[tuple[NDArray[np.int32], NDArray[np.int32]] | None]
        self._views = [None] * len(self._columns)

    def lengths(self) -> IntArray:
        lengths = [np.diff(self._view(which)[0]) for which in range(len(self._columns))]
        return np.concatenate([np.zeros(0), *lengths]).astype(np.int64)

    def row(self, which: int, row: int) -> NDArray[np.int32]:
        offsets, values = self._views[which] or self._view(which)
        return values[offsets[row] : offsets[row + 1]]

    def _view(self, which: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        # `offsets` respects the column's slice, `values` is the whole child array.
        column = self._columns[which]
        view = (
            np.asarray(column.offsets.to_numpy(), dtype=np.int32),
            np.asarray(column.values.to_numpy(zero_copy_only=True), dtype=np.int32),
        )
        self._views[which] = view
        return view


class Shards:
    """A prepared data set: manifest and splits."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Use :func:`load_shards`."""
        self.folder = folder
        self.manifest = manifest
        self.labels: list[str] = list(manifest["labels"])
        self.task: str = manifest["task"]
        self.text_settings = TextSettings(**manifest["text_settings"])
        self.bucket_edges: IntArray = np.array(manifest["bucket_edges"], dtype=np.int64)

    @property
    def takes_pairs(self) -> bool:
        """Whether every row is a pair of texts, ``[CLS] a [SEP] b [SEP]``."""
        return bool(self.manifest.get("takes_pairs", False))

    @property
    def fingerprint(self) -> str:
        """Hash of the sources and settings that these shards were made from."""
        return str(self.manifest["fingerprint"])

    def split(self, name: str) -> ShardSplit:
        """Return one of ``train``, ``validation``, ``test``."""
        files = self.manifest["splits"][name]["files"]
        return ShardSplit([self.folder / file for file in files])


def load_shards(folder: Path, *, verify: bool = True) -> Shards:
    """Return a shards folder, every file's sha256 checked if ``verify``.

    Raises:
        MissingFileError: a file is not there.
        AlteredFileError: a file was changed.
        SchemaVersionError: another version wrote the folder.
        FolderError: the manifest lacks a field.
    """
    manifest = read_manifest(folder)
    version = manifest.get("schema_version")
    if version != SHARDS_SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this version reads shards of schema {SHARDS_SCHEMA_VERSION}",
            place=str(folder),
            value=version,
            remedy="Run `textlane prepare --force` with this version.",
        )
    needed = ("fingerprint", "task", "labels", "text_settings", "bucket_edges", "splits", "files")
    missing = [name for name in needed if name not in manifest]
    if missing:
        raise FolderError(f"the manifest lacks {', '.join(missing)}", place=str(folder))
    if verify:
        verify_files(folder, manifest["files"])
    return Shards(folder, manifest)


def write_shard(path: Path, table: pa.Table) -> None:
    """Write one Arrow IPC file of :data:`SHARD_SCHEMA`; equal rows give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    batch = table.cast(SHARD_SCHEMA).combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SHARD_SCHEMA) as writer:
        writer.write_table(batch)


def _map_batches(path: Path) -> list[pa.RecordBatch]:
    reader = pa.ipc.open_file(pa.memory_map(str(path), "r"))
    if reader.schema != SHARD_SCHEMA:
        raise pa.ArrowInvalid(f"{path} has other columns than a shard")
    return [reader.get_batch(index) for index in range(reader.num_record_batches)]
