"""Sorts tokenised rows into buckets and writes them as shard files."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.contract.batching import IntArray, bucket_of, choose_bucket_edges
from pipeline.contract.shards import SHARD_SCHEMA, SPLITS, write_shard
from pipeline.contract.tokenization import IGNORED_LABEL


def token_lengths(table: pa.Table) -> IntArray:
    """Return the tokens of every row, ``int64 [rows]``."""
    lengths = pc.list_value_length(table.column("input_ids"))
    return np.asarray(lengths.to_numpy(), dtype=np.int64)


def split_table(table: pa.Table, split: str) -> pa.Table:
    """Return the rows of one split."""
    return table.filter(pc.equal(table.column("split"), SPLITS.index(split)))


def bucket_edges_for(table: pa.Table, *, num_buckets: int) -> IntArray:
    """Return the edges that pad the train rows least; the last one holds every split's rows."""
    edges = choose_bucket_edges(token_lengths(split_table(table, "train")), num_buckets=num_buckets)
    edges[-1] = max(edges[-1], int(token_lengths(table).max()))
    return edges


def write_split(
    folder: Path, table: pa.Table, split: str, *, edges: IntArray, max_shard_rows: int
) -> list[str]:
    """Write a split's rows, ordered by bucket and ``row_id``; return the files' names.

    A file holds rows of one bucket, at most ``max_shard_rows`` of them. Names are relative
    to ``folder``, in the order in which training reads them.
    """
    rows = split_table(table, split)
    buckets = bucket_of(token_lengths(rows), edges)
    row_ids = np.asarray(rows.column("row_id").to_numpy(), dtype=np.int64)
    files = []
    for bucket in range(len(edges)):
        inside = np.flatnonzero(buckets == bucket)
        inside = inside[np.argsort(row_ids[inside], kind="stable")]
        for shard, begin in enumerate(range(0, len(inside), max_shard_rows)):
            name = f"{split}/bucket_{bucket:02d}_shard_{shard:05d}.arrow"
            chosen = rows.take(inside[begin : begin + max_shard_rows])
            write_shard(folder / name, chosen.select(SHARD_SCHEMA.names))
            files.append(name)
    return files


def describe_split(table: pa.Table, split: str, labels: Sequence[str]) -> dict[str, Any]:
    """Return rows, tokens and label counts of a split (of words for token labels)."""
    rows = split_table(table, split)
    counts = Counter(pc.list_flatten(rows.column("labels")).to_pylist())
    counts.pop(IGNORED_LABEL, None)
    return {
        "rows": rows.num_rows,
        "tokens": int(token_lengths(rows).sum()),
        "label_counts": {label: counts[index] for index, label in enumerate(labels)},
    }
