"""The train stage: shards to checkpoint folder."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.config import JobConfig
from pipeline.contract.errors import ConfigError, FolderError
from pipeline.contract.folder import (
    atomic_folder,
    fingerprint,
    read_manifest,
    sha256_file,
    write_manifest,
)
from pipeline.contract.shards import Shards, load_shards
from pipeline.contract.tokenization import TOKENIZER_NAME, TextEncoder, load_text_encoder
from pipeline.data.augment import Augmentation
from pipeline.data.plan import count_steps, plan_settings_of
from pipeline.model.architecture import (
    HF_CONFIG_NAME,
    Architecture,
    build_random_architecture,
    find_pretrained,
    read_hf_architecture,
)
from pipeline.model.checkpoint_manifest import (
    CHECKPOINT_SCHEMA_VERSION,
    FINAL,
    read_checkpoint_manifest,
)
from pipeline.model.shape_check import check_logits
from pipeline.model.weights import WEIGHTS_NAME, build_new_model
from pipeline.stage import StageResult, is_done
from pipeline.train.checkpoint import find_latest_checkpoint
from pipeline.train.loop import TrainingRun
from pipeline.train.memory import build_memory_ledger, describe_memory
from pipeline.train.schedule import describe_schedule

Fit = Callable[[TrainingRun], None]

_VERSIONS_OF = ("numpy", "ray", "tokenizers", "torch")
_NOT_DECIDING = {
    "checkpoint_every_steps",
    "keep_checkpoints",
    "loader_workers",
    "micro_batch",
    "permanent_every_steps",
}
"""Training settings that do not change what is learned, so that a run goes on under new ones."""


def train(job: JobConfig, *, force: bool = False, fit: Fit | None = None) -> StageResult:
    """Train the job's model on its shards and return the checkpoint folder.

    A finished training of the same inputs and settings is reused, an unfinished one goes on
    from its last checkpoint; any other content of the folder is replaced.

    Args:
        job: the job.
        force: train anew whatever is there.
        fit: runs the training; None runs it on Ray.

    Raises:
        FolderError: the shards cannot be used, or the target is no checkpoint folder.
        WeightsError: the pretrained weights do not fit.
        ConfigError: a setting does not fit the shards or the pretrained model, or
            model.factory gives no model to train.
        TrainingError: training cannot start or go on.
    """
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    print_ = Console(stderr=True, soft_wrap=True).print
    mark = str(run.facts["fingerprint"])
    if not force and is_done(run.checkpoint_dir, mark) and _final_file(run).is_file():
        return _result(run, is_reused=True)
    model, notes = build_new_model(run.architecture, seed=job.seed, pretrained=run.pretrained)
    notes += check_logits(model, run.architecture)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    del model
    open_run(run, shards, force=force)
    ledger = build_memory_ledger(num_parameters, precision=job.train.precision)
    notes.append(describe_schedule(job.train, total_steps=run.total_steps))
    notes.append(f"memory of each worker: {describe_memory(ledger)}")
    if latest := find_latest_checkpoint(run.checkpoint_dir):
        notes.append(f"goes on from {latest.name}")
    for line in notes:
        print_(line, highlight=False, markup=False)
    if fit is None:
        # Ray is loaded only when there is something to train.
        from pipeline.train.trainer import fit_on_ray

        fit = fit_on_ray
    fit(run)
    return _result(run, is_reused=False)


def plan_run(job: JobConfig, shards: Shards) -> TrainingRun:
    """Return the training of a job on these shards; nothing is written.

    Raises:
        ConfigError: the shards were made for another task or length of texts, hold no rows to
            train on, or their tokenizer lacks the [MASK] that augmentation needs.
        WeightsError: config.json of the pretrained model does not fit.
    """
    _demand_fit(job, shards)
    pretrained = find_pretrained(job.model)
    encoder = load_text_encoder(shards.folder, shards.text_settings)
    architecture = _build_architecture(job, shards, encoder=encoder, pretrained=pretrained)
    epoch_steps = count_steps(
        shards.split("train").lengths, epochs=job.train.epochs, settings=plan_settings_of(job)
    )
    return TrainingRun(
        job=job,
        architecture=architecture,
        shards_dir=shards.folder.resolve(),
        checkpoint_dir=job.checkpoint_dir.resolve(),
        pretrained=pretrained.resolve() if pretrained else None,
        epoch_steps=epoch_steps,
        augmentation=_build_augmentation(job, encoder),
        facts={
            "fingerprint": _fingerprint(job, shards, architecture, pretrained=pretrained),
            "shards_fingerprint": shards.fingerprint,
            "total_steps": sum(epoch_steps),
            "versions": {name: version(name) for name in _VERSIONS_OF},
        },
    )


def _demand_fit(job: JobConfig, shards: Shards) -> None:
    remedy = "Run `textlane prepare` for this job."
    num_rows = int(shards.manifest["splits"]["train"]["rows"])
    if shards.task != job.task.value or not num_rows:
        raise ConfigError(
            f"the shards are for {shards.task} and hold {num_rows} training rows",
            place=str(shards.folder),
            value=job.task.value,
            remedy=remedy,
        )
    max_seq_len = shards.text_settings.max_seq_len
    if max_seq_len != job.model.max_seq_len:
        raise ConfigError(
            f"the texts of {shards.folder} were cut for model.max_seq_len {max_seq_len}",
            place="model.max_seq_len",
            value=job.model.max_seq_len,
            remedy=remedy,
        )
    takes_pairs = job.data.text_pair_column is not None
    if takes_pairs != shards.takes_pairs:
        raise ConfigError(
            f"the shards hold {'pairs of' if shards.takes_pairs else 'single'} texts",
            place=str(shards.folder),
            value=job.data.text_pair_column,
            remedy=remedy,
        )


def _build_augmentation(job: JobConfig, encoder: TextEncoder) -> Augmentation | None:
    settings, mask_token_id = job.train.augmentation, encoder.mask_token_id
    if not settings.is_on:
        return None
    if mask_token_id is None:
        raise ConfigError(
            "augmentation masks tokens, but the tokenizer of the shards has no [MASK]",
            place="train.augmentation",
            value=settings.model_dump(),
            remedy="Set token_dropout and span_masking to 0, or prepare with another tokenizer.",
        )
    return Augmentation(
        **settings.model_dump(),
        mask_token_id=mask_token_id,
        special_token_ids=encoder.special_token_ids,
        seed=job.seed,
    )


def _build_architecture(
    job: JobConfig, shards: Shards, *, encoder: TextEncoder, pretrained: Path | None
) -> Architecture:
    num_labels, pad_token_id = len(shards.labels), encoder.pad_token_id
    sep_token_id = encoder.sep_token_id if shards.takes_pairs else None
    if pretrained is None:
        return build_random_architecture(
            job.model,
            vocab_size=encoder.vocab_size,
            task=shards.task,
            num_labels=num_labels,
            pad_token_id=pad_token_id,
            sep_token_id=sep_token_id,
        )
    architecture = read_hf_architecture(
        pretrained,
        job.model,
        task=shards.task,
        num_labels=num_labels,
        pad_token_id=pad_token_id,
        sep_token_id=sep_token_id,
    )
    if encoder.vocab_size > architecture.vocab_size:
        raise ConfigError(
            f"the shards' tokenizer has {encoder.vocab_size} entries, the pretrained model "
            f"{architecture.vocab_size}",
            place="model.pretrained",
            value=job.model.pretrained,
            remedy="Run `textlane prepare` again with this model.",
        )
    return architecture


def _fingerprint(
    job: JobConfig, shards: Shards, architecture: Architecture, *, pretrained: Path | None
) -> str:
    names = (HF_CONFIG_NAME, WEIGHTS_NAME)
    files = [pretrained / name for name in names] if pretrained else []
    return fingerprint(
        {
            "schema_version": CHECKPOINT_SCHEMA_VERSION,
            "shards": shards.fingerprint,
            "seed": job.seed,
            "window_batches": job.buckets.window_batches,
            "architecture": asdict(architecture),
            "train": job.train.model_dump(mode="json", exclude=_NOT_DECIDING),
            "pretrained": [sha256_file(file) for file in files if file.is_file()],
        }
    )


def open_run(run: TrainingRun, shards: Shards, *, force: bool) -> None:
    """Leave an unfinished folder of this run as it is; put an empty one in any other's place."""
    folder = run.checkpoint_dir
    if folder.exists() and any(folder.iterdir()):
        try:
            found = read_manifest(folder)
        except FolderError:
            found = {}
        if "shards_fingerprint" not in found:
            raise FolderError(
                "the folder holds something else than checkpoints and is left alone",
                place=str(folder),
                remedy="Move it away or set another output_dir.",
            )
        if not force and found.get("fingerprint") == run.facts["fingerprint"]:
            return
    with atomic_folder(folder) as fresh:
        shutil.copyfile(shards.folder / TOKENIZER_NAME, fresh / TOKENIZER_NAME)
        write_manifest(fresh, _first_manifest(run, shards))


def _first_manifest(run: TrainingRun, shards: Shards) -> dict[str, Any]:
    return {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        **run.facts,
        "is_finished": False,
        "task": shards.task,
        "labels": shards.labels,
        "text_settings": asdict(shards.text_settings),
        "text_fingerprint": load_text_encoder(shards.folder, shards.text_settings).fingerprint,
        "pad_token_id": run.architecture.pad_token_id,
        "architecture": asdict(run.architecture),
        "shards_dir": str(run.shards_dir),
        "latest": None,
        "checkpoints": [],
    }


def _result(run: TrainingRun, *, is_reused: bool) -> StageResult:
    last = _final_entry(run)
    return StageResult(
        folder=run.job.checkpoint_dir,
        is_reused=is_reused,
        summary=f"{last['step']} steps, last loss {last['loss']:.4f}",
    )


def _final_entry(run: TrainingRun) -> dict[str, Any]:
    manifest = read_checkpoint_manifest(run.checkpoint_dir)
    found: dict[str, Any] = next(e for e in manifest["checkpoints"] if e["kind"] == FINAL)
    return found


def _final_file(run: TrainingRun) -> Path:
    return run.checkpoint_dir / str(_final_entry(run)["file"])
