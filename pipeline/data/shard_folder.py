"""Builds the shards folder: tokenizer, tokenised rows by split and bucket, manifest."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import JobConfig
from pipeline.contract.batching import IntArray
from pipeline.contract.folder import atomic_folder, hash_files, write_manifest
from pipeline.contract.shards import SHARDS_SCHEMA_VERSION, SPLITS, ShardSplit
from pipeline.contract.tokenization import TextEncoder
from pipeline.data.intake import SelectedRows
from pipeline.data.ledger import REJECTED_NAME
from pipeline.data.padding import describe_buckets, padding_figures
from pipeline.data.plan import PlanSettings
from pipeline.data.shard_files import bucket_edges_for, describe_split, write_split
from pipeline.data.tokenise import EncoderRecipe, rows_table
from pipeline.data.vocabulary import text_settings_of, train_text_encoder

Tokenise = Callable[[pa.Table, EncoderRecipe], pa.Table]
_VERSIONED = ("numpy", "pyarrow", "ray", "tokenizers")


def build_shards(
    job: JobConfig,
    selected: SelectedRows,
    *,
    encoder: TextEncoder | None,
    made_from: str,
    tokenise: Tokenise,
) -> dict[str, Any]:
    """Tokenise the rows, write the shards folder atomically and return its manifest.

    Args:
        job: the job.
        selected: the rows.
        encoder: of the pretrained folder; None trains one on the train rows.
        made_from: fingerprint of files and settings.
        tokenise: returns the tokenised table, ordered by ``row_id``.
    """
    encoder = encoder or _train_encoder(job, selected)
    recipe = EncoderRecipe(
        tokenizer_json=encoder.to_json(), settings=encoder.settings, task=job.task
    )
    table = tokenise(rows_table(selected.rows, selected.splits, selected.labels), recipe)
    edges = bucket_edges_for(table, num_buckets=job.buckets.num_buckets)
    with atomic_folder(job.shards_dir) as folder:
        encoder.save(folder)
        selected.ledger.write_rejected(folder / REJECTED_NAME)
        splits = {}
        for split in SPLITS:
            files = write_split(
                folder, table, split, edges=edges, max_shard_rows=job.buckets.max_shard_rows
            )
            splits[split] = {"files": files, **describe_split(table, split, selected.labels)}
        truncated = int(pc.sum(table.column("is_truncated")).as_py() or 0)
        manifest = {
            "schema_version": SHARDS_SCHEMA_VERSION,
            "fingerprint": made_from,
            "task": job.task.value,
            "labels": selected.labels,
            **_describe_text(encoder),
            "bucket_edges": edges.tolist(),
            "splits": splits,
            "rows": {**selected.ledger.counts(), "truncated": truncated},
            **_describe_padding(job, folder, files=splits["train"]["files"], edges=edges),
            "versions": {name: version(name) for name in _VERSIONED},
            "files": hash_files(folder),
        }
        write_manifest(folder, manifest)
    return manifest


def _train_encoder(job: JobConfig, selected: SelectedRows) -> TextEncoder:
    pairs = zip(selected.rows, selected.splits, strict=True)
    texts = [row.text for row, split in pairs if split == "train"]
    return train_text_encoder(
        texts, vocab_size=job.model.vocab_size, settings=text_settings_of(job)
    )


def _describe_text(encoder: TextEncoder) -> dict[str, Any]:
    return {
        "text_settings": {
            "max_seq_len": encoder.settings.max_seq_len,
            "strip_html": encoder.settings.strip_html,
        },
        "text_fingerprint": encoder.fingerprint,
        "pad_token_id": encoder.pad_token_id,
        "vocab_size": encoder.vocab_size,
    }


def _describe_padding(
    job: JobConfig, folder: Path, *, files: Sequence[str], edges: IntArray
) -> dict[str, Any]:
    # Read back, so that the figures are of the very row order that training plans with.
    lengths = ShardSplit([folder / file for file in files]).lengths
    settings = PlanSettings(
        batch_rows=job.train.global_batch,
        max_batch_tokens=job.train.max_batch_tokens,
        window_batches=job.buckets.window_batches,
        seed=job.seed,
        longest_first=job.train.longest_first,
    )
    return {
        "padding": padding_figures(lengths, edges, settings),
        "buckets": describe_buckets(lengths, edges, settings),
    }
