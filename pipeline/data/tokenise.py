"""The second pass: turns blocks of the spool into token rows; pure, knows no Ray."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.batching import IntArray
from pipeline.contract.errors import FolderError
from pipeline.contract.shards import SPLITS
from pipeline.contract.tokenization import (
    TextSettings,
    align_labels,
    build_text_encoder,
)
from pipeline.data.spool import BlockReader, Spool
from pipeline.data.windows import WindowEncoder

_INT_LIST = pa.list_(pa.int32())
_TRAIN = SPLITS.index("train")
_WORK_ROWS = 4096
_WORK_BYTES = 1 << 20
TOKEN_SCHEMA = pa.schema(
    [
        # Position in the spool, and so among all rows read.
        pa.field("row", pa.int64(), nullable=False),
        pa.field("window", pa.int32(), nullable=False),
        pa.field("split", pa.int8(), nullable=False),
        # A Fit.
        pa.field("fit", pa.int8(), nullable=False),
        pa.field("input_ids", _INT_LIST, nullable=False),
        # Label ids: of the text, or one for each token.
        pa.field("labels", _INT_LIST, nullable=False),
    ]
)


class Fit(IntEnum):
    """How a text fits ``max_seq_len``."""

    WHOLE = 0
    TRUNCATED = 1
    """Cut off at the end."""
    WINDOW = 2
    """One of several rows that hold all of the text."""
    TOO_LONG = 3
    """Not used (``on_too_long: reject``)."""


@dataclass(frozen=True, kw_only=True)
class TokenRecipe:
    """All that a worker process needs to tokenise as every other one does."""

    spool: Path
    """File of :data:`pipeline.data.blocks.SPOOL_SCHEMA`, seen by every worker."""
    tokenizer_json: str
    settings: TextSettings
    task: Task
    labels: tuple[str, ...]
    """Label names in the order of their ids."""
    has_pairs: bool
    on_too_long: str
    window_stride: int


@dataclass(frozen=True, kw_only=True)
class TokenWork:
    """Neighbouring blocks of the spool, tokenised in one go."""

    first_row: int
    blocks: tuple[int, ...]
    splits: bytes
    """Split of each of their rows, position in ``SPLITS`` or -1, as ``int8``."""


TokenPass = Callable[[Sequence[TokenWork], TokenRecipe], Iterator[pa.Table]]
"""Yields the tables of :class:`Tokeniser` for all work, in its order."""


def divide_work(spool: Spool, split: NDArray[np.int8]) -> list[TokenWork]:
    """Return the blocks that hold kept rows, small neighbours together.

    Args:
        spool: of the texts.
        split: of every row, position in ``SPLITS`` or -1.
    """
    works: list[TokenWork] = []
    begin = num_rows = num_bytes = 0
    for block, end in enumerate(spool.starts[1:].tolist()):
        start = int(spool.starts[block])
        kept = int((split[start:end] >= 0).sum())
        num_rows += kept
        num_bytes += spool.num_bytes[block] * kept // (end - start)
        is_last = block == len(spool.num_bytes) - 1
        if num_rows and (is_last or num_rows >= _WORK_ROWS or num_bytes >= _WORK_BYTES):
            first_row = int(spool.starts[begin])
            splits = split[first_row:end].tobytes()
            blocks = tuple(range(begin, block + 1))
            works.append(TokenWork(first_row=first_row, blocks=blocks, splits=splits))
            num_rows = num_bytes = 0
        if not num_rows:
            begin = block + 1
    return works


class Tokeniser:
    """Tokenises blocks of the spool; built once per process."""

    def __init__(self, recipe: TokenRecipe) -> None:
        """Build the tokenizer and open the spool.

        Raises:
            FolderError: this process does not see the spool.
        """
        self._recipe = recipe
        self._encoder = build_text_encoder(recipe.tokenizer_json, recipe.settings)
        self._windows = None
        if recipe.on_too_long == "window":
            self._windows = WindowEncoder(self._encoder, stride=recipe.window_stride)
        self._label_set = pa.array(recipe.labels, type=pa.string())
        try:
            self._spool = BlockReader(recipe.spool)
        except FileNotFoundError:
            raise FolderError(
                "a worker does not see the output folder",
                place=str(recipe.spool.parent),
                remedy="Set output_dir to a folder that all nodes share.",
            ) from None

    def __call__(self, work: TokenWork) -> pa.Table:
        """Return the token rows of all kept rows, in order, as :data:`TOKEN_SCHEMA`.

        An over-long text gives several rows if it becomes windows.
        """
        blocks = pa.Table.from_batches([self._spool.read(block) for block in work.blocks])
        splits = np.frombuffer(work.splits, dtype=np.int8)
        kept = np.flatnonzero(splits >= 0)
        rows = blocks.take(pa.array(kept)).combine_chunks()
        labels = self._label_ids(rows.column("labels").combine_chunks())
        is_train = splits[kept] == _TRAIN
        encode = self._encode_words if self._recipe.task is Task.TOKEN else self._encode_texts
        encoded = encode(rows, labels, is_train)
        source = kept[encoded.source]
        numbers = [source + work.first_row, encoded.window, splits[source], encoded.fit]
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(numbers, TOKEN_SCHEMA, strict=False)
        ]
        columns = [*arrays, encoded.input_ids, encoded.labels]
        return pa.Table.from_arrays(columns, schema=TOKEN_SCHEMA)

    def _label_ids(self, labels: pa.ListArray) -> pa.ListArray:
        ids = np.asarray(pc.index_in(labels.flatten(), value_set=self._label_set))
        if self._recipe.task is Task.MULTI_LABEL:  # In the order of their ids, not their names.
            ids = ids[np.lexsort((ids, np.asarray(pc.list_parent_indices(labels))))]
        return _lists(ids, _list_lengths(labels))

    def _encode_texts(
        self, rows: pa.Table, labels: pa.ListArray, is_train: NDArray[np.bool_]
    ) -> "_Encoded":
        texts = rows.column("text").to_pylist()
        if self._recipe.has_pairs:
            pairs = list(zip(texts, rows.column("text_pair").to_pylist(), strict=True))
            batch = self._encoder.encode_batch(pairs)
        else:
            batch = self._encoder.encode_batch(texts)
        cut = np.flatnonzero(batch.is_truncated & is_train).tolist()
        if self._windows is None or not cut:
            return _Encoded(
                source=np.arange(len(texts)),
                window=np.zeros(len(texts), dtype=np.int64),
                fit=self._fit(batch.is_truncated),
                input_ids=_lists(batch.input_ids, batch.lengths),
                labels=labels,
            )
        ends = np.cumsum(batch.lengths)
        pieces = [[ids] for ids in np.split(batch.input_ids, ends[:-1])]
        for row, windows in zip(
            cut, self._windows.encode_texts([texts[row] for row in cut]), strict=True
        ):
            pieces[row] = windows
        source, window = _count_pieces(pieces)
        flat = [ids for windows in pieces for ids in windows]
        return _Encoded(
            source=source,
            window=window,
            fit=self._fit(batch.is_truncated, cut)[source],
            input_ids=_join(flat),
            labels=labels.take(pa.array(source)),
        )

    def _encode_words(
        self, rows: pa.Table, labels: pa.ListArray, is_train: NDArray[np.bool_]
    ) -> "_Encoded":
        # No cleaned word holds a blank, so the words are found again.
        words = [text.split(" ") for text in rows.column("text").to_pylist()]
        encoded = self._encoder.encode_words(words)
        is_truncated = np.array([row.is_truncated for row in encoded])
        pieces = [[row] for row in encoded]
        cut = np.flatnonzero(is_truncated & is_train).tolist() if self._windows else []
        if self._windows is not None and cut:
            found = self._windows.encode_words([words[row] for row in cut])
            for row, windows in zip(cut, found, strict=True):
                pieces[row] = windows
        source, window = _count_pieces(pieces)
        word_labels = np.split(np.asarray(labels.values), np.asarray(labels.offsets)[1:-1])
        flat = [piece for windows in pieces for piece in windows]
        aligned = [
            align_labels(word_labels[row], piece.word_ids)
            for row, piece in zip(source, flat, strict=True)
        ]
        return _Encoded(
            source=source,
            window=window,
            fit=self._fit(is_truncated, cut)[source],
            input_ids=_join([piece.input_ids for piece in flat]),
            labels=_join(aligned),
        )

    def _fit(self, is_truncated: NDArray[np.bool_], windowed: Sequence[int] = ()) -> IntArray:
        is_rejecting = self._recipe.on_too_long == "reject"
        fit = np.where(is_truncated, Fit.TOO_LONG if is_rejecting else Fit.TRUNCATED, Fit.WHOLE)
        fit[list(windowed)] = Fit.WINDOW
        return fit


@dataclass(frozen=True, kw_only=True)
class _Encoded:
    """Token rows of some texts."""

    source: IntArray
    """Text of each row, ``int64 [rows]``."""
    window: IntArray
    fit: IntArray
    input_ids: pa.ListArray
    labels: pa.ListArray


def _count_pieces(pieces: Sequence[Sequence[object]]) -> tuple[IntArray, IntArray]:
    """Return the text and the window of every piece, ``int64 [pieces]`` each."""
    counts = np.array([len(windows) for windows in pieces], dtype=np.int64)
    source = np.repeat(np.arange(len(pieces)), counts)
    return source, np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)


def _join(rows: Sequence[NDArray[np.int32]]) -> pa.ListArray:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return _lists(np.concatenate(rows), lengths)


def _lists(values: NDArray[np.int32], lengths: IntArray) -> pa.ListArray:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = pa.array(np.ascontiguousarray(values, dtype=np.int32))
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=_INT_LIST)


def _list_lengths(lists: pa.ListArray) -> IntArray:
    return np.diff(np.asarray(lists.offsets)).astype(np.int64)
