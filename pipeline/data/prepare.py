"""The prepare stage: labelled text files become bucketed token shards."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import DataSettings, JobConfig
from pipeline.contract.errors import FolderError
from pipeline.contract.folder import fingerprint, read_manifest
from pipeline.contract.shards import SHARDS_SCHEMA_VERSION, load_shards
from pipeline.contract.tokenization import TextEncoder
from pipeline.data.intake import bad_rows_path
from pipeline.data.passes_ray import RAY_PASSES
from pipeline.data.rows import RejectReason
from pipeline.data.screen import PrepareScreen
from pipeline.data.shard_folder import ShardInputs, build_shards
from pipeline.data.source_file import SourceFile
from pipeline.data.sources import find_sources
from pipeline.data.vocabulary import load_pretrained_encoder
from pipeline.ray_session import ray_session
from pipeline.stage import StageResult, is_done

_NOT_DECIDING = {
    "files",
    "validation_files",
    "test_files",
    "format",
    "encoding",
    "max_bad_share",
    "on_bad_rows",
}
"""Data settings that leave finished shards as they are; files count by name, content and use.

The two on bad rows do so only while the rows found bad are within them."""


def prepare(job: JobConfig, *, force: bool = False) -> StageResult:
    """Write the shards folder of a job, or find it finished.

    Equal files and settings give equal shards, byte for byte, on any number of workers.

    Raises:
        DataError: an input file or its rows cannot be used.
        BadRowsError: more rows are bad than ``data.max_bad_share`` allows.
        ConfigError: a setting or package that the files need is missing.
        FolderError: the pretrained folder's tokenizer or the output folder cannot be used.
    """
    screen = PrepareScreen()
    sources = find_sources(job.data, own=_written_by(job), say=screen.note)
    encoder = load_pretrained_encoder(job)
    made_from = shards_fingerprint(job, sources, encoder)
    if not force and is_prepared(job, made_from):
        summary = summarise(read_manifest(job.shards_dir))
        return StageResult(folder=job.shards_dir, is_reused=True, summary=summary)
    inputs = ShardInputs(sources=sources, encoder=encoder, fingerprint=made_from)
    with ray_session(job.ray):
        manifest = build_shards(job, inputs, passes=RAY_PASSES, screen=screen)
    bad_rows_path(job).unlink(missing_ok=True)
    screen.show_rejected(manifest["rows"])
    return StageResult(folder=job.shards_dir, is_reused=False, summary=summarise(manifest))


def _written_by(job: JobConfig) -> list[Path]:
    folders = [job.shards_dir, job.checkpoint_dir, job.report_dir, job.bundle_dir]
    return [*folders, bad_rows_path(job)]


def is_prepared(job: JobConfig, made_from: str) -> bool:
    """Return whether the job's shards are finished, whole and within its limits on bad rows.

    Args:
        job: the job.
        made_from: its :func:`shards_fingerprint`.
    """
    if not is_done(job.shards_dir, made_from):
        return False
    try:
        manifest = load_shards(job.shards_dir).manifest
    except FolderError:
        return False
    return _is_within_limits(manifest["rows"], job.data)


def _is_within_limits(rows: Mapping[str, Any], data: DataSettings) -> bool:
    # The limits may have been set after the shards were made.
    by_reason = rows["rejected_by_reason"].items()
    num_bad = sum(count for reason, count in by_reason if RejectReason(reason).is_bad)
    limit = 0.0 if data.on_bad_rows == "fail" else data.max_bad_share * rows["read"]
    return bool(num_bad <= limit)


def shards_fingerprint(
    job: JobConfig, sources: Sequence[SourceFile], encoder: TextEncoder | None
) -> str:
    """Return the hash of everything that decides the shards: file contents and settings.

    The folder that a package or checkout lies in does not count; the names that the job
    gives its files do, because the manifest and the rejected rows show them.
    """
    vocabulary = encoder.fingerprint if encoder else job.model.vocab_size
    return fingerprint(
        {
            "schema_version": SHARDS_SCHEMA_VERSION,
            "sources": [
                [source.name, source.format, source.codec, source.given_split, source.sha256]
                for source in sources
            ],
            "data": job.data.model_dump(mode="json", exclude=_NOT_DECIDING),
            "label_order": list(job.data.label_names),
            "buckets": job.buckets.model_dump(mode="json"),
            "vocabulary": vocabulary,
            "max_seq_len": job.model.max_seq_len,
            "task": job.task.value,
            "seed": job.seed,
            "global_batch": job.train.global_batch,
            "max_batch_tokens": job.train.max_batch_tokens,
        }
    )


def summarise(manifest: Mapping[str, Any]) -> str:
    """Return one line for people of a shards folder's manifest."""
    rows, padding = manifest["rows"], manifest["padding"]
    # Texts, not rows of the shards: of those a long text has several.
    splits = ", ".join(f"{name} {split['texts']:,}" for name, split in manifest["splits"].items())
    windows = (
        f", {rows['windowed']:,} long ones as {rows['windows']:,} windows"
        if rows["windowed"]
        else ""
    )
    return (
        f"{rows['kept']:,} of {rows['read']:,} rows ({splits}; {rows['rejected']:,} rejected, "
        f"{rows['not_sampled']:,} not sampled){windows}, padding {padding['random']:.1%} random, "
        f"{padding['buckets_window']:.1%} planned"
    )
