"""Facts and spools of invented rows, for tests of what is decided from them."""

import hashlib

import numpy as np
import pyarrow as pa

from pipeline.config import DataSettings, Task
from pipeline.contract.shards import SPLITS
from pipeline.contract.tokenization import TextSettings
from pipeline.data.blocks import SPOOL_SCHEMA
from pipeline.data.cleaning import ReadRecipe, clean_row
from pipeline.data.row_facts import RowFacts
from pipeline.data.rows import SourceRow
from pipeline.data.spool import SpoolWriter

SETTINGS = TextSettings(max_seq_len=16, strip_html=True)


def recipe_of(task=Task.SEQUENCE, *, seed=0, **data):
    settings = DataSettings(files=("x.csv",), **data)
    return ReadRecipe(data=settings, task=task, settings=SETTINGS, seed=seed)


def source_row(text="x", *labels, file="f.csv", line=1, **values):
    return SourceRow(file=file, line=line, text=text, labels=labels or ("a",), **values)


def sentence(*words, labels=None):
    labels = labels or tuple("O" for _ in words)
    return SourceRow(file="f.conll", line=1, words=words, labels=labels)


def hash_number(content):
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8])


def facts_of(labels, *, texts=None, splits=None, prefix="text", seed=0):
    """Return the facts of one file's rows: by default each text differs, no split is given."""
    texts = texts or [f"{prefix} {index}" for index in range(len(labels))]
    settings = recipe_of(seed=seed, sample_rows=1)
    rows = [clean_row(source_row(text), settings) for text in texts]
    hashes = np.frombuffer(b"".join(row.text_hash + row.draw for row in rows), dtype=">u8")
    columns = np.ascontiguousarray(hashes.reshape(-1, 3).T, dtype=np.uint64)
    given = [SPLITS.index(split) if split else -1 for split in splits or [None] * len(labels)]
    return RowFacts(
        file_starts=np.array([0, len(labels)]),
        text_high=columns[0],
        text_low=columns[1],
        label_hash=np.array([hash_number(repr(label)) for label in labels], dtype=np.uint64),
        draw=columns[2],
        given_split=np.array(given, dtype=np.int8),
        reason=np.full(len(labels), -1, dtype=np.int8),
        split=np.full(len(labels), -1, dtype=np.int8),
    )


def label_reader(labels):
    return lambda rows: [
        [labels[row]] if isinstance(labels[row], str) else labels[row] for row in rows
    ]


def spool_of(path, rows, *, rows_per_block=3):
    """Return a spool of (text, labels) or (text, labels, line, value) rows."""
    full = [(*row, 1, "")[:4] for row in rows]
    columns = {
        "line": [line for _, _, line, _ in full],
        "text": [text for text, *_ in full],
        "text_pair": [""] * len(full),
        "labels": [list(labels) for _, labels, *_ in full],
        "value": [value for *_, value in full],
    }
    table = pa.table(columns, schema=SPOOL_SCHEMA)
    with SpoolWriter(path, SPOOL_SCHEMA) as writer:
        for begin in range(0, len(full), rows_per_block):
            writer.append(table.slice(begin, rows_per_block))
        return writer.close()
