"""The export stage: checkpoint → bundle, every model file checked before it is kept."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from pipeline.config import JobConfig
from pipeline.contract.bundle import (
    BUNDLE_SCHEMA_VERSION,
    MODEL_NAMES,
    Bundle,
    BundleManifest,
    Limits,
    load_bundle,
    write_bundle,
)
from pipeline.contract.disk import explain_full_disk
from pipeline.contract.errors import FolderError
from pipeline.contract.folder import fingerprint, read_manifest
from pipeline.contract.shards import load_shards
from pipeline.contract.tokenization import TOKENIZER_NAME
from pipeline.export.acceptance import Acceptance, check_reason
from pipeline.export.fill import DISK_NEEDS, ExportInputs, Filled, fill_models, say
from pipeline.export.optimized_dump import dump_optimized as dump_model
from pipeline.export.optimized_dump import prepare_dump_folder, remove_dump
from pipeline.export.parity import GRID_BATCH_SIZES
from pipeline.export.provenance import installed_versions, source_commit
from pipeline.model.checkpoint_manifest import chosen_entry, read_checkpoint_manifest
from pipeline.model.trained import load_trained
from pipeline.quality import accuracy_name
from pipeline.stage import StageResult

_MAX_TEXT_CHARS = 100_000
"""Chosen: seven times the longest film review; its tokens beyond max_seq_len are cut anyway."""


def export(
    job: JobConfig,
    *,
    force: bool = False,
    accept: str | None = None,
    dump_optimized: Path | None = None,
) -> StageResult:
    """Write the bundle of a job's checkpoint; keep one that is already there and intact.

    Args:
        job: the job; its checkpoint and shards are there.
        force: write the bundle although it is there.
        accept: why INT8 becomes the default even if the gate does not pass it.
        dump_optimized: folder for the graphs as ONNX Runtime optimises them on this machine.

    Raises:
        ConfigError: ``accept`` is no reason.
        FolderError: (or a subtype) checkpoint or shards are missing, altered, unfinished
            or do not belong together, or there can be no dump in its folder.
        ExportError: a model file failed a check; an older bundle stays as it was.
    """
    reason = check_reason(accept) if accept is not None else None
    if dump_optimized is not None:
        sealed = (job.shards_dir, job.checkpoint_dir, job.report_dir, job.bundle_dir)
        prepare_dump_folder(dump_optimized, sealed=sealed)
    console = Console(stderr=True, soft_wrap=True)
    mark = _fingerprint_inputs(job, reason)
    bundle = _find_bundle(job.bundle_dir)
    is_reused = not force and bundle is not None and _mark_of(bundle) == mark
    if bundle is None or not is_reused:
        if bundle and reason is None and (old := _accepted_reason(bundle)):
            say(console, f"INT8 was accepted ({old}); without --accept it is judged anew")
        bundle = _write(
            ExportInputs(
                job=job,
                trained=load_trained(job.checkpoint_dir),
                shards=load_shards(job.shards_dir),
                fingerprint=mark,
                acceptance=_accept(reason),
                console=console,
            )
        )
    if dump_optimized is not None:
        _dump(bundle, dump_optimized, console)
    return StageResult(folder=bundle.folder, is_reused=is_reused, summary=_summarise(bundle))


def _accept(reason: str | None) -> Acceptance | None:
    return Acceptance(reason=reason, at=datetime.now(UTC).date()) if reason else None


def _write(inputs: ExportInputs) -> Bundle:
    job = inputs.job
    filled: list[Filled] = []

    def fill(folder: Path) -> None:
        shutil.copyfile(job.checkpoint_dir / TOKENIZER_NAME, folder / TOKENIZER_NAME)
        filled.append(fill_models(folder, inputs))

    def describe(files: dict[str, str]) -> BundleManifest:
        return _describe(files, inputs, filled[0])

    with explain_full_disk(job.bundle_dir, needs=DISK_NEEDS):
        return write_bundle(job.bundle_dir, fill=fill, describe=describe)


def _dump(bundle: Bundle, target: Path, console: Console) -> None:
    for name in set(MODEL_NAMES) - set(bundle.model_names):
        remove_dump(target / Path(name).stem)  # Of an earlier bundle that had it.
    for name in bundle.model_names:
        # A folder for each: the file and its weights always bear the same names.
        path = dump_model(
            bundle.model_path(name), target / Path(name).stem, device=bundle.manifest.target
        )
        say(console, f"{name} as ONNX Runtime optimises it here → {path}")


def _fingerprint_inputs(job: JobConfig, reason: str | None) -> str:
    checkpoint = read_checkpoint_manifest(job.checkpoint_dir)
    shards = read_manifest(job.shards_dir)
    if checkpoint["shards_fingerprint"] != shards.get("fingerprint"):
        raise FolderError(
            "the checkpoint was trained on other shards than these",
            place=str(job.shards_dir),
            value=shards.get("fingerprint"),
            remedy="Run `textlane train` with these settings first.",
        )
    chosen = chosen_entry(checkpoint)
    return fingerprint(
        {
            "schema_version": BUNDLE_SCHEMA_VERSION,
            "name": job.name,
            "checkpoint": chosen["sha256"] if chosen else None,
            "shards": shards["fingerprint"],
            "export": job.export.model_dump(mode="json"),
            "accept": reason,
            "seed": job.seed,
            "batch_rows": job.evaluate.batch_rows,
            "versions": installed_versions(),
        }
    )


def _find_bundle(folder: Path) -> Bundle | None:
    # A bundle's manifest has no room for the usual field, and half a bundle is not done.
    try:
        return load_bundle(folder)
    except FolderError:
        return None


def _mark_of(bundle: Bundle) -> object:
    return bundle.manifest.provenance.get("fingerprint")


def _accepted_reason(bundle: Bundle) -> str | None:
    accepted = (bundle.manifest.quality.get("gate") or {}).get("accepted")
    return str(accepted["reason"]) if accepted else None


def _describe(files: dict[str, str], inputs: ExportInputs, filled: Filled) -> BundleManifest:
    job, trained = inputs.job, inputs.trained
    text = trained.text_settings
    return BundleManifest.model_validate(
        {
            "schema_version": BUNDLE_SCHEMA_VERSION,
            "name": job.name,
            "task": str(trained.task),
            "labels": trained.labels,
            "target": job.export.target,
            "default_model": filled.default_model,
            "batch_shift": filled.batch_shift,
            "seq_len_percentiles": inputs.seq_len_percentiles,
            "profile": filled.profile,
            "opset": job.export.opset,
            "pad_token_id": trained.encoder.pad_token_id,
            "max_seq_len": text.max_seq_len,
            "strip_html": text.strip_html,
            "takes_pairs": trained.architecture.takes_pairs,
            "text_fingerprint": trained.encoder.fingerprint,
            "limits": Limits(
                max_seq_len=text.max_seq_len,
                max_text_chars=_MAX_TEXT_CHARS,
                max_batch_rows=max(GRID_BATCH_SIZES),
            ),
            "quality": filled.quality,
            "provenance": {
                "fingerprint": inputs.fingerprint,
                "data_hash": inputs.shards.fingerprint,
                "config_hash": fingerprint(job.model_dump(mode="json")),
                "checkpoint": {
                    "file": trained.checkpoint_file.name,
                    "sha256": trained.checkpoint_sha256,
                },
                "versions": installed_versions(),
                "commit": source_commit(Path(__file__)),
            },
            "files": files,
        }
    )


def _summarise(bundle: Bundle) -> str:
    quality, measure = bundle.manifest.quality, accuracy_name(bundle.manifest.task)
    parts = [
        f"{name} {size / 1e6:.1f} MB, {measure} {quality['accuracy'][name]:.4f}"
        for name, size in quality["size_bytes"].items()
    ]
    accepted = " (accepted)" if _accepted_reason(bundle) else ""
    default = f"default model {bundle.manifest.default_model}{accepted}"
    return f"{bundle.version}: {'; '.join(parts)}; {default}"
