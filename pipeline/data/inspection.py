"""What is in a shards folder, in figures: rows, labels, lengths, buckets, padding, examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ValidationError

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import AlteredFileError, FolderError
from pipeline.contract.shards import SPLITS, Shards, ShardSplit, load_shards
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.data.lengths import (
    PICTURE_NAME,
    LengthFigures,
    length_figures,
    length_histogram,
)

_NUM_EXAMPLES = 10
_EXAMPLE_CHARS = 200
_PREPARE_AGAIN = "Run `textlane prepare --force`."


class _Figures(BaseModel, frozen=True):
    """Part of the manifest; fields that are not named are left out."""


class FileRows(_Figures):
    """Rows of one file, or of all; ``read = kept + rejected + not_sampled``."""

    read: int
    kept: int
    rejected: int
    not_sampled: int


class RowFigures(FileRows):
    """What became of the rows of the input files."""

    rejected_by_reason: dict[str, int] = {}
    by_file: dict[str, FileRows] = {}
    truncated: int = 0
    """Kept texts that were cut at ``max_seq_len``."""


class BucketFigures(_Figures):
    """Train rows of one length class."""

    edge: int
    rows: int
    tokens: int
    padding_to_edge: float
    padding: float


class PaddingFigures(_Figures):
    """Share of padding, 0 to 1, in three orders of the train rows."""

    random: float
    buckets: float
    buckets_window: float


class _SplitFiles(_Figures):
    files: list[str]


class _SplitsFiles(_Figures):
    train: _SplitFiles
    validation: _SplitFiles
    test: _SplitFiles


class _Manifest(_Figures):
    labels: list[str]
    rows: RowFigures
    buckets: list[BucketFigures]
    padding: PaddingFigures
    splits: _SplitsFiles
    files: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class SplitFigures:
    """What one split holds, counted from its files."""

    rows: int
    tokens: int
    windowed_texts: int
    """Texts that stand here in several rows, because they are too long for one."""
    windows: int
    """Rows that are parts of such texts."""
    lengths: LengthFigures
    labelled: int
    """What the labels' shares are of: rows, or labelled words for token labels."""
    unlabelled_rows: int
    """Rows without any label (multi-label)."""
    label_counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class RowExample:
    """One row as people see it."""

    split: str
    row_id: int
    window: int
    tokens: int
    labels: list[str]
    """One, several or none; for token labels one for each word."""
    text: str
    """At most 200 characters; may hold anything that the files hold."""
    text_pair: str


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """All that ``textlane inspect`` shows."""

    folder: str
    task: str
    fingerprint: str
    rows: RowFigures
    splits: dict[str, SplitFigures]
    buckets: list[BucketFigures]
    padding: PaddingFigures
    length_histogram: dict[str, list[int]]
    """Of the train rows: distinct ``tokens`` and the ``rows`` that have each."""
    longest: list[RowExample]
    shortest: list[RowExample]
    picture: str | None
    """Path of the folder's picture, if it has one."""


def inspect_shards(folder: Path, *, verify: bool = True) -> Inspection:
    """Return what is in a shards folder; in memory at once are only a few numbers a row.

    Args:
        folder: the shards.
        verify: check every file's sha256 first.

    Raises:
        MissingFileError: a file is not there.
        AlteredFileError: a file was changed.
        SchemaVersionError: another version wrote the folder.
        FolderError: the manifest lacks a field or holds a wrong one, or a split has no rows.
    """
    shards = load_shards(folder, verify=verify)
    try:
        manifest = _Manifest.model_validate(shards.manifest)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise FolderError(
            f"the manifest's {field} cannot be used: {first['msg'].lower()}",
            place=str(folder),
            remedy=_PREPARE_AGAIN,
        ) from error
    splits = {name: _open_split(shards, name) for name in SPLITS}
    figures = {name: _describe(shards, split) for name, split in splits.items()}
    return Inspection(
        folder=str(folder),
        task=shards.task,
        fingerprint=shards.fingerprint,
        rows=manifest.rows,
        splits=figures,
        buckets=manifest.buckets,
        padding=manifest.padding,
        length_histogram=length_histogram(splits["train"].lengths),
        longest=_examples(shards, splits, sign=-1),
        shortest=_examples(shards, splits, sign=1),
        picture=str(folder / PICTURE_NAME) if PICTURE_NAME in manifest.files else None,
    )


def _open_split(shards: Shards, name: str) -> ShardSplit:
    try:
        split = shards.split(name)
    except pa.ArrowInvalid as error:
        raise AlteredFileError(
            f"a file of the {name} split is no shard",
            place=str(shards.folder),
            remedy=_PREPARE_AGAIN,
        ) from error
    if len(split) == 0:
        raise FolderError(
            f"the {name} split has no rows",
            place=str(shards.folder),
            remedy="Prepare again with more rows, or with a larger share for this split.",
        )
    return split


def _describe(shards: Shards, split: ShardSplit) -> SplitFigures:
    lengths, windows = split.lengths, split.windows
    counts = split.label_counts(len(shards.labels))
    is_token = shards.task == "token_classification"
    windowed_texts = int((windows == 1).sum())
    return SplitFigures(
        rows=len(split),
        tokens=int(lengths.sum()),
        windowed_texts=windowed_texts,
        windows=int((windows > 0).sum()) + windowed_texts,
        lengths=length_figures(lengths),
        labelled=int(counts.sum()) if is_token else len(split),
        unlabelled_rows=int((split.labels_per_row == 0).sum()),
        label_counts=dict(zip(shards.labels, counts.tolist(), strict=True)),
    )


def _examples(shards: Shards, splits: dict[str, ShardSplit], *, sign: int) -> list[RowExample]:
    found = []
    for place, (name, split) in enumerate(splits.items()):
        keys, row_ids, windows = split.lengths * sign, split.row_ids, split.windows
        for index in _first_rows(keys, row_ids, windows):
            order = (int(keys[index]), place, int(row_ids[index]), int(windows[index]))
            found.append((order, name, index))
    chosen = sorted(found)[:_NUM_EXAMPLES]
    return [_example(shards, splits[name], name, index) for _, name, index in chosen]


def _first_rows(keys: IntArray, row_ids: IntArray, windows: IntArray) -> Sequence[int]:
    # Only rows that can be among the first are sorted; the split may have millions.
    count = min(_NUM_EXAMPLES, len(keys))
    inside = np.flatnonzero(keys <= np.partition(keys, count - 1)[count - 1])
    order = np.lexsort((windows[inside], row_ids[inside], keys[inside]))
    return [int(index) for index in inside[order[:count]]]


def _example(shards: Shards, split: ShardSplit, name: str, index: int) -> RowExample:
    labels = split.labels(index).tolist()
    try:
        text, text_pair = split.text(index), split.text_pair(index)
    except UnicodeDecodeError as error:
        raise AlteredFileError(
            f"a text of the {name} split is not UTF-8",
            place=str(shards.folder),
            remedy=_PREPARE_AGAIN,
        ) from error
    return RowExample(
        split=name,
        row_id=int(split.row_ids[index]),
        window=int(split.windows[index]),
        tokens=len(split.input_ids(index)),
        labels=[shards.labels[label] for label in labels if label != IGNORED_LABEL],
        text=_shorten(text),
        text_pair=_shorten(text_pair),
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _EXAMPLE_CHARS else f"{text[: _EXAMPLE_CHARS - 1]}…"
