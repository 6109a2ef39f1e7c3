"""Turns a table of cleaned rows into a table of token ids; pure, knows no Ray."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.shards import SPLITS
from pipeline.contract.tokenization import (
    EncodedText,
    TextEncoder,
    TextSettings,
    align_labels,
    build_text_encoder,
)
from pipeline.data.cleaning import CleanRow

_INT_LIST = pa.list_(pa.int32())
ROWS_SCHEMA = pa.schema(
    [
        pa.field("row_id", pa.int64(), nullable=False),
        pa.field("split", pa.int8(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        # Empty for texts with one label.
        pa.field("words", pa.list_(pa.string()), nullable=False),
        # Label ids: one for a text, one for each word.
        pa.field("labels", _INT_LIST, nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True)
class EncoderRecipe:
    """All that a worker process needs to tokenise as every other one does."""

    tokenizer_json: str
    settings: TextSettings
    task: Task

    def build(self) -> TextEncoder:
        """Return the encoder."""
        return build_text_encoder(self.tokenizer_json, self.settings)


def rows_table(rows: Sequence[CleanRow], splits: Sequence[str], labels: Sequence[str]) -> pa.Table:
    """Return the rows as a table of :data:`ROWS_SCHEMA`, label names turned into ids.

    ``split`` is the position in :data:`pipeline.contract.shards.SPLITS`.
    """
    label_ids = {label: index for index, label in enumerate(labels)}
    columns = {
        "row_id": [row.row_id for row in rows],
        "split": [SPLITS.index(split) for split in splits],
        "text": [row.text for row in rows],
        "words": [row.words or () for row in rows],
        "labels": [[label_ids[label] for label in row.labels] for row in rows],
    }
    return pa.table(columns, schema=ROWS_SCHEMA)


def tokenise_table(table: pa.Table, encoder: TextEncoder, task: Task) -> pa.Table:
    """Return the rows with ``input_ids`` and, for token labels, one label for each token.

    Columns: ``row_id``, ``split``, ``text``, ``input_ids``, ``labels``, ``is_truncated``.
    """
    if task is Task.TOKEN:
        encoded = encoder.encode_words(table.column("words").to_pylist())
        word_labels = table.column("labels").to_pylist()
        labels = [
            align_labels(row_labels, row.word_ids)
            for row_labels, row in zip(word_labels, encoded, strict=True)
        ]
        label_lists = _list_array(labels)
    else:
        encoded = encoder.encode_texts(table.column("text").to_pylist())
        label_lists = table.column("labels")
    return pa.table(
        {
            "row_id": table.column("row_id"),
            "split": table.column("split"),
            "window": pa.array(np.zeros(table.num_rows, dtype=np.int32)),
            "text": table.column("text"),
            "text_pair": pa.array([""] * table.num_rows, type=pa.string()),
            "input_ids": _list_array([row.input_ids for row in encoded]),
            "labels": label_lists,
            "is_truncated": pa.array(_truncations(encoded), type=pa.bool_()),
        }
    )


def _truncations(encoded: Sequence[EncodedText]) -> list[bool]:
    return [row.is_truncated for row in encoded]


def _list_array(rows: Sequence[NDArray[np.int32]]) -> pa.ListArray:
    offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
    values = np.concatenate([np.zeros(0, dtype=np.int32), *rows])
    return pa.ListArray.from_arrays(offsets, values).cast(_INT_LIST)
