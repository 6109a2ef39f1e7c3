"""The export stage: checkpoint → bundle, every model file checked before it is kept."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.config import JobConfig, Task
from pipeline.contract.bundle import (
    BUNDLE_SCHEMA_VERSION,
    FP32_NAME,
    Bundle,
    BundleManifest,
    Limits,
    load_bundle,
    write_bundle,
)
from pipeline.contract.errors import FolderError
from pipeline.contract.folder import fingerprint, read_manifest
from pipeline.contract.shards import Shards, load_shards
from pipeline.contract.tokenization import TOKENIZER_NAME
from pipeline.export.build import build_models
from pipeline.export.figures import (
    GATE_SPLIT,
    SCORE_SPLIT,
    ScoreSettings,
    file_sizes,
    judge_int8,
    measure_speed_and_shift,
    score_models,
)
from pipeline.export.gate import GateDecision
from pipeline.export.onnx_session import LogitsFunction, open_model
from pipeline.export.parity import GRID_BATCH_SIZES, grid_seq_lens
from pipeline.export.provenance import installed_versions, source_commit
from pipeline.model.checkpoint_manifest import chosen_entry, read_checkpoint_manifest
from pipeline.model.trained import TrainedModel, load_trained
from pipeline.quality import accuracy_name
from pipeline.stage import StageResult

_MAX_TEXT_CHARS = 100_000
"""Chosen: seven times the longest film review; its tokens beyond max_seq_len are cut anyway."""


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    job: JobConfig
    trained: TrainedModel
    shards: Shards
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    quality: dict[str, Any]
    default_model: str


def export(job: JobConfig, *, force: bool = False) -> StageResult:
    """Write the bundle of a job's checkpoint; keep one that is already there and intact.

    Raises:
        FolderError: (or a subtype) checkpoint or shards are missing, altered, unfinished
            or do not belong together.
        ExportError: a model file failed a check; an older bundle stays as it was.
    """
    mark = _fingerprint_inputs(job)
    if not force and (found := _find_finished(job.bundle_dir, mark)):
        return StageResult(folder=found.folder, is_reused=True, summary=_summarise(found))
    trained = load_trained(job.checkpoint_dir)
    inputs = _Inputs(job=job, trained=trained, shards=load_shards(job.shards_dir), fingerprint=mark)
    outcomes: list[_Outcome] = []

    def fill(folder: Path) -> None:
        shutil.copyfile(job.checkpoint_dir / TOKENIZER_NAME, folder / TOKENIZER_NAME)
        outcomes.append(_fill_models(folder, inputs, Console(stderr=True, soft_wrap=True)))

    def describe(files: dict[str, str]) -> BundleManifest:
        return _describe(files, inputs, outcomes[0])

    bundle = write_bundle(job.bundle_dir, fill=fill, describe=describe)
    return StageResult(folder=bundle.folder, is_reused=False, summary=_summarise(bundle))


def _fingerprint_inputs(job: JobConfig) -> str:
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
            "batch_rows": job.evaluate.batch_rows,
            "versions": installed_versions(),
        }
    )


def _find_finished(folder: Path, mark: str) -> Bundle | None:
    # A bundle's manifest has no room for the usual field, and half a bundle is not done.
    try:
        bundle = load_bundle(folder)
    except FolderError:
        return None
    return bundle if bundle.manifest.provenance.get("fingerprint") == mark else None


def _fill_models(folder: Path, inputs: _Inputs, console: Console) -> _Outcome:
    job, trained, shards = inputs.job, inputs.trained, inputs.shards
    console.print("export: writing the models and comparing them with torch", highlight=False)
    built = build_models(
        folder,
        trained,
        settings=job.export,
        seq_lens=grid_seq_lens(shards.bucket_edges, trained.text_settings.max_seq_len),
        seed=job.seed,
    )
    for note in built.notes:
        console.print(f"export: {note}", highlight=False)
    models = {name: open_model(folder / name) for name in built.names}
    console.print("export: measuring speed, accuracy and batch shift", highlight=False)
    measured = measure_speed_and_shift(
        models,
        shards,
        vocab_size=trained.architecture.vocab_size,
        pad_token_id=trained.encoder.pad_token_id,
        max_seq_len=trained.text_settings.max_seq_len,
    )
    gate, scores = _score(models, inputs)
    if gate:
        style = "green" if gate.passed else "yellow"
        console.print(f"export: {gate.sentence}", style=style, highlight=False)
    quality = {
        **scores,
        "gate": gate.as_figures() if gate else None,
        "size_bytes": file_sizes(folder, built.names),
        **measured,
        "parity": {"max_abs_difference": built.parity, "atol": job.export.atol},
        "fused": built.fused,
        "notes": list(built.notes),
    }
    return _Outcome(quality=quality, default_model=gate.default_model if gate else FP32_NAME)


def _score(
    models: Mapping[str, LogitsFunction], inputs: _Inputs
) -> tuple[GateDecision | None, dict[str, Any]]:
    job, trained, shards = inputs.job, inputs.trained, inputs.shards
    settings = ScoreSettings(
        task=Task(trained.task),
        num_labels=len(trained.labels),
        pad_token_id=trained.encoder.pad_token_id,
        batch_rows=job.evaluate.batch_rows,
    )
    validation, test = shards.split(GATE_SPLIT), shards.split(SCORE_SPLIT)
    gate = judge_int8(models, validation, settings, max_drop=job.export.max_accuracy_drop)
    # Not torch once more: parity has just shown that FP32 gives its logits.
    scores = score_models(models, test, settings)
    return gate, {"split": SCORE_SPLIT, "rows": len(test), **scores}


def _describe(files: dict[str, str], inputs: _Inputs, outcome: _Outcome) -> BundleManifest:
    job, trained = inputs.job, inputs.trained
    text = trained.text_settings
    return BundleManifest.model_validate(
        {
            "schema_version": BUNDLE_SCHEMA_VERSION,
            "name": job.name,
            "task": str(trained.task),
            "labels": trained.labels,
            "default_model": outcome.default_model,
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
            "quality": outcome.quality,
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
    return f"{bundle.version}: {'; '.join(parts)}; default model {bundle.manifest.default_model}"
