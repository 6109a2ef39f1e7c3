"""The shards folder: Arrow IPC files by split and bucket, memory-mapped, with a manifest."""

from collections.abc import Sequence
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
        # Position of the row in the source files, counted over all of them: the row's identity.
        pa.field("row_id", pa.int64(), nullable=False),
        # Which part of an over-long text, from 0; 0 for a text that is whole or cut off.
        pa.field("window", pa.int32(), nullable=False),
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
        """Map the files; nothing but their footers is read."""
        batches = [batch for path in paths for batch in _map_batches(path)]
        self._table = pa.Table.from_batches(batches, schema=SHARD_SCHEMA)
        self._ids = list(self._table.column("input_ids").chunks)
        self._labels = list(self._table.column("labels").chunks)
        self._starts = np.cumsum([0] + [len(chunk) for chunk in self._ids])

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._starts[-1])

    @property
    def lengths(self) -> IntArray:
        """Tokens of every row, ``int64 [rows]``."""
        return _list_lengths(self._ids)

    @property
    def row_ids(self) -> IntArray:
        """Identity of every row, ``int64 [rows]``."""
        return np.asarray(self._table.column("row_id").to_numpy(), dtype=np.int64)

    @property
    def windows(self) -> IntArray:
        """Which part of its text every row is, ``int64 [rows]``; mostly 0."""
        return np.asarray(self._table.column("window").to_numpy(), dtype=np.int64)

    @property
    def labels_per_row(self) -> IntArray:
        """Entries in the labels of every row, ``int64 [rows]``; -100 counts as one."""
        return _list_lengths(self._labels)

    def label_counts(self, num_labels: int) -> IntArray:
        """Return how often each label stands in the rows, ``int64 [num_labels]``; no -100.

        Raises:
            FolderError: a row has a label that is not below ``num_labels``.
        """
        counts = np.zeros(num_labels, dtype=np.int64)
        for chunk in self._labels:
            found = np.asarray(chunk.flatten().to_numpy(), dtype=np.int64)
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
        return self._list(self._ids, index)

    def labels(self, index: int) -> NDArray[np.int32]:
        """Labels of a row: ``int32 [1]``, any number (multi-label), or ``[seq]`` (token labels)."""
        return self._list(self._labels, index)

    def text(self, index: int) -> str:
        """Return the cleaned text of a row (words joined by spaces for token labels)."""
        return str(self._table.column("text")[index].as_py())

    def text_pair(self, index: int) -> str:
        """Return the cleaned second text of a pair; empty for single texts."""
        return str(self._table.column("text_pair")[index].as_py())

    def _list(self, chunks: list[Any], index: int) -> NDArray[np.int32]:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        which = int(np.searchsorted(self._starts, index, side="right")) - 1
        chunk, row = chunks[which], index - int(self._starts[which])
        # `offsets` respects the chunk's slice, `values` is the whole child array.
        begin, end = chunk.offsets[row].as_py(), chunk.offsets[row + 1].as_py()
        return np.asarray(chunk.values.to_numpy(zero_copy_only=True)[begin:end], dtype=np.int32)


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


def _list_lengths(chunks: list[Any]) -> IntArray:
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in chunks]
    return np.concatenate([np.zeros(0), *lengths]).astype(np.int64)


def _map_batches(path: Path) -> list[pa.RecordBatch]:
    reader = pa.ipc.open_file(pa.memory_map(str(path), "r"))
    return [reader.get_batch(index) for index in range(reader.num_record_batches)]
