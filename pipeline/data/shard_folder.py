"""Builds the shards folder: reads, tokenises and writes the rows, then the manifest."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import JobConfig
from pipeline.contract.batching import IntArray, bucket_of, choose_bucket_edges
from pipeline.contract.disk import explain_full_disk
from pipeline.contract.folder import atomic_folder, hash_files, write_manifest
from pipeline.contract.shards import SHARDS_SCHEMA_VERSION, SPLITS
from pipeline.contract.tokenization import TextEncoder
from pipeline.data.intake import SelectedRows, select_rows
from pipeline.data.ledger import REJECTED_NAME
from pipeline.data.lengths import PICTURE_NAME, length_histogram
from pipeline.data.padding import describe_buckets, padding_figures
from pipeline.data.passes import Passes
from pipeline.data.picture import draw_lengths
from pipeline.data.plan import plan_settings_of
from pipeline.data.screen import PrepareScreen
from pipeline.data.shard_files import WrittenShards, write_shards
from pipeline.data.slices import SliceSettings
from pipeline.data.source_file import SourceFile
from pipeline.data.token_rows import TokenRows, tokenise_rows
from pipeline.data.vocabulary import train_encoder

_SPOOL_NAME = ".spool"
_VERSIONED = ("matplotlib", "numpy", "pyarrow", "ray", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class ShardInputs:
    """What shards are made from."""

    sources: Sequence[SourceFile]
    encoder: TextEncoder | None
    """Of the pretrained folder; None trains one on the train rows."""
    fingerprint: str
    """Of files and settings."""


def build_shards(
    job: JobConfig, inputs: ShardInputs, *, passes: Passes, screen: PrepareScreen
) -> dict[str, Any]:
    """Write the shards folder of a job atomically and return its manifest.

    Texts and tokens lie in files of the unfinished folder meanwhile, so that memory holds
    only a few numbers of each row.

    Args:
        job: the job.
        inputs: files, tokenizer and fingerprint.
        passes: how files are read and rows tokenised.
        screen: is told how far the work is.

    Raises:
        DataError: a file or its rows cannot be used, or a split lacks rows or labels.
        BadRowsError: more rows are bad than ``data.max_bad_share`` allows.
        FolderError: the disk is full, or a worker does not see the folder.
    """
    needs = "prepare needs about three times the size of the texts"
    with explain_full_disk(job.shards_dir, needs=needs), atomic_folder(job.shards_dir) as folder:
        made = _write_rows(job, inputs, folder, passes=passes, screen=screen)
        figures = _describe_lengths(job, made.tokens, made.edges)
        picture = draw_lengths(
            histogram=figures["length_histogram"],
            buckets=figures["buckets"],
            padding=figures["padding"],
        )
        (folder / PICTURE_NAME).write_text(picture, encoding="utf-8")
        manifest = {
            "schema_version": SHARDS_SCHEMA_VERSION,
            "fingerprint": inputs.fingerprint,
            "task": job.task.value,
            "labels": made.selected.labels,
            "takes_pairs": job.data.text_pair_column is not None,
            **_describe_text(made.encoder),
            "bucket_edges": made.edges.tolist(),
            "splits": _describe_splits(made),
            "rows": {**made.selected.ledger.counts(), **made.tokens.counts()},
            **figures,
            "versions": {name: version(name) for name in _VERSIONED},
            "files": hash_files(folder),
        }
        write_manifest(folder, manifest)
    return manifest


@dataclass(frozen=True, kw_only=True)
class _Made:
    """What was written, for the manifest."""

    selected: SelectedRows
    encoder: TextEncoder
    tokens: TokenRows
    edges: IntArray
    written: WrittenShards


def _write_rows(
    job: JobConfig, inputs: ShardInputs, folder: Path, *, passes: Passes, screen: PrepareScreen
) -> _Made:
    spools = folder / _SPOOL_NAME
    spools.mkdir()
    with screen.step(f"reading {len(inputs.sources):,} file(s)") as advance:
        selected = select_rows(
            job,
            inputs.sources,
            spool_path=spools / "texts.arrow",
            read=passes.read,
            advance=advance,
        )
    encoder = inputs.encoder or train_encoder(job, selected.spool, selected.facts.split)
    with screen.step("tokenising", selected.num_kept) as advance:
        tokens = tokenise_rows(
            job,
            selected,
            encoder,
            spool_path=spools / "tokens.arrow",
            tokenise=passes.tokenise,
            advance=advance,
        )
    edges = _bucket_edges(tokens, num_buckets=job.buckets.num_buckets)
    written = write_shards(
        folder,
        tokens.spool,
        selected.spool,
        edges=edges,
        num_labels=len(selected.labels),
        max_shard_bytes=job.buckets.max_shard_bytes,
    )
    encoder.save(folder)
    selected.ledger.write_rejected(folder / REJECTED_NAME)
    shutil.rmtree(spools)
    return _Made(selected=selected, encoder=encoder, tokens=tokens, edges=edges, written=written)


def _bucket_edges(tokens: TokenRows, *, num_buckets: int) -> IntArray:
    """Return the edges that pad the train rows least; the last one holds every split's rows."""
    lengths = tokens.lengths_of("train").astype(np.int64)
    edges = choose_bucket_edges(lengths, num_buckets=num_buckets)
    edges[-1] = max(edges[-1], int(tokens.lengths.max()))
    return edges


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


def _describe_splits(made: _Made) -> dict[str, dict[str, Any]]:
    """Return files, texts, rows (windows are rows), tokens and labels' counts in the rows."""
    selected, tokens, written = made.selected, made.tokens, made.written
    return {
        split: {
            "files": written.files[split],
            "texts": int((selected.facts.split == index).sum()),
            "rows": len(tokens.lengths_of(split)),
            "tokens": int(tokens.lengths_of(split).sum()),
            "label_counts": dict(
                zip(selected.labels, written.label_counts[split].tolist(), strict=True)
            ),
        }
        for index, split in enumerate(SPLITS)
    }


def _describe_lengths(job: JobConfig, tokens: TokenRows, edges: IntArray) -> dict[str, Any]:
    # In the order of the shards' rows, which is the one that training plans with.
    lengths = in_bucket_order(tokens.lengths_of("train"), edges)
    settings = plan_settings_of(job)
    slices = SliceSettings(
        micro_batch=job.train.global_batch,
        bucket_edges=edges,
        max_padding=job.buckets.max_padding,
    )
    return {
        "length_histogram": length_histogram(lengths),
        "padding": padding_figures(lengths, settings, slices),
        "buckets": describe_buckets(lengths, settings, slices),
    }


def in_bucket_order(lengths: NDArray[np.int32], edges: IntArray) -> IntArray:
    """Return the lengths of a split's rows as they stand in its files, ``int64 [rows]``."""
    wide = lengths.astype(np.int64)
    return wide[np.argsort(bucket_of(wide, edges), kind="stable")]
