"""Small shards folders, written by hand."""

import pyarrow as pa

from pipeline.contract.folder import hash_files, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, write_shard


def shard_row(row_id, tokens, labels, text="some text", *, window=0, text_pair=""):
    return {
        "row_id": row_id,
        "window": window,
        "text": text,
        "text_pair": text_pair,
        "input_ids": list(range(tokens)),
        "labels": labels,
    }


def write_sample_shards(folder, splits, *, labels, task="sequence_classification", **manifest):
    """Write rows (split → a list for each file); keyword arguments replace manifest fields."""
    described = {}
    for split, files in splits.items():
        names = [f"{split}/bucket_{number:02d}_shard_00000.arrow" for number in range(len(files))]
        for name, rows in zip(names, files, strict=True):
            write_shard(folder / name, pa.Table.from_pylist(rows, schema=SHARD_SCHEMA))
        described[split] = {"files": names}
    count = {"read": 12, "kept": 9, "rejected": 3, "not_sampled": 0}
    fields = {
        "schema_version": 2,
        "fingerprint": "abc",
        "task": task,
        "labels": labels,
        "text_settings": {"max_seq_len": 16, "strip_html": False},
        "bucket_edges": [4, 9],
        "splits": described,
        "rows": {
            **count,
            "truncated": 1,
            "rejected_by_reason": {"duplicate": 2, "empty_text": 1},
            "by_file": {"a.csv": count},
        },
        "buckets": [
            {"edge": 4, "rows": 2, "tokens": 7, "padding_to_edge": 0.125, "padding": 0.0},
            {"edge": 9, "rows": 3, "tokens": 24, "padding_to_edge": 0.111111, "padding": 0.04},
        ],
        "padding": {"random": 0.4, "buckets": 0.1, "buckets_window": 0.02},
        "files": hash_files(folder),
    }
    write_manifest(folder, {**fields, **manifest})
    return folder


def three_splits(row):
    """Return splits of which validation and test hold one plain row each."""
    return {
        "train": [[row]],
        "validation": [[shard_row(1, 3, [])]],
        "test": [[shard_row(2, 3, [])]],
    }
