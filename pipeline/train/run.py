"""The train stage: shards to checkpoint folder."""

from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.config import JobConfig, Task
from pipeline.contract.errors import ConfigError
from pipeline.contract.folder import fingerprint, sha256_file
from pipeline.contract.shards import Shards, load_shards
from pipeline.contract.tokenization import TextEncoder, load_text_encoder
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
    BEST,
    CHECKPOINT_SCHEMA_VERSION,
    FINAL,
    chosen_entry,
    read_checkpoint_manifest,
)
from pipeline.model.shape_check import check_logits
from pipeline.model.weights import WEIGHTS_NAME, build_new_model
from pipeline.quality import is_bio
from pipeline.stage import StageResult
from pipeline.train.memory import build_memory_ledger, describe_memory
from pipeline.train.resume_rules import is_finished, judge_folder, keep_choices, open_run
from pipeline.train.schedule import describe_schedule
from pipeline.train.step_rows import find_worst_pass
from pipeline.train.training_run import TrainingRun

Fit = Callable[[TrainingRun], None]

_VERSIONS_OF = ("numpy", "ray", "tokenizers", "torch")
_NOT_DECIDING = {
    "checkpoint_every_steps",
    "final_weights",
    "keep_checkpoints",
    "loader_workers",
    "micro_batch",
    "permanent_every_steps",
    "tensorboard",
}
"""Training settings that do not change what is learned, so that a run goes on under new ones."""
_DECIDING_THE_END = {"best_metric", "validate_every_steps"}
"""Measuring changes nothing learned; with early stopping it decides which step is the last."""


def train(job: JobConfig, *, force: bool = False, fit: Fit | None = None) -> StageResult:
    """Train the job's model on its shards and return the checkpoint folder.

    A finished training of the same inputs and settings is reused, an unfinished one goes on
    from its last checkpoint. A finished one of others is replaced with a word, an unfinished one
    of others is refused.

    Args:
        job: the job.
        force: train anew whatever is there.
        fit: runs the training; None runs it on Ray.

    Raises:
        FolderError: the shards cannot be used, or the target is no checkpoint folder or holds
            an unfinished training of other settings.
        WeightsError: the pretrained weights do not fit.
        ConfigError: a setting does not fit the shards or the pretrained model, or
            model.factory gives no model to train.
        TrainingError: training cannot start or go on.
    """
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    print_ = Console(stderr=True, soft_wrap=True).print
    if not force and is_finished(run):
        keep_choices(run)
        return _result(run, is_reused=True)
    judge_folder(run, force=force)  # before the weights are loaded
    model, notes = build_new_model(run.architecture, seed=job.seed, pretrained=run.pretrained)
    notes += check_logits(model, run.architecture)
    rows, seq_len = find_worst_pass(job, shards)
    ledger = build_memory_ledger(
        model,
        precision=job.train.precision,
        rows=rows,
        seq_len=seq_len,
        device_type="cuda" if job.ray.use_gpu else "cpu",
    )
    del model
    run = replace(run, memory=ledger)
    notes += open_run(run, shards, force=force)
    if not run.num_validation_rows and job.train.validate_every_steps != 0:
        notes.append("the shards hold no validation rows, so nothing is measured while training")
    notes.append(describe_schedule(job.train, total_steps=run.total_steps))
    if run.memory is not None:
        notes.append(f"memory of each worker: {describe_memory(run.memory)}")
    if checkpoints := read_checkpoint_manifest(run.checkpoint_dir)["checkpoints"]:
        # Which of them is whole, the worker finds out and tells; hashing them takes its time.
        newest = checkpoints[-1]["file"]
        notes.append(f"goes on with a training whose newest checkpoint is {newest}")
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
            train on or to measure, or their tokenizer lacks the [MASK] that augmentation needs.
        WeightsError: config.json of the pretrained model does not fit.
    """
    _demand_fit(job, shards)
    _demand_measurable(job, shards)
    pretrained = find_pretrained(job.model)
    encoder = load_text_encoder(shards.folder, shards.text_settings)
    architecture = _build_architecture(job, shards, encoder=encoder, pretrained=pretrained)
    epoch_steps = count_steps(
        shards.split("train").lengths, epochs=job.train.epochs, settings=plan_settings_of(job)
    )
    deciding = _deciding(job, shards, architecture, pretrained=pretrained)
    return TrainingRun(
        job=job,
        architecture=architecture,
        shards_dir=shards.folder.resolve(),
        checkpoint_dir=job.checkpoint_dir.resolve(),
        pretrained=pretrained.resolve() if pretrained else None,
        epoch_steps=epoch_steps,
        num_validation_rows=_num_validation_rows(shards),
        augmentation=_build_augmentation(job, encoder),
        facts={
            "fingerprint": fingerprint(deciding),
            "shards_fingerprint": shards.fingerprint,
            "total_steps": sum(epoch_steps),
            "versions": {name: version(name) for name in _VERSIONS_OF},
        },
        deciding=deciding,
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


def _deciding(
    job: JobConfig, shards: Shards, architecture: Architecture, *, pretrained: Path | None
) -> dict[str, Any]:
    """Return all that decides what is learned, as JSON; its hash is the fingerprint."""
    names = (HF_CONFIG_NAME, WEIGHTS_NAME)
    files = [pretrained / name for name in names] if pretrained else []
    stops_early = job.train.early_stopping_patience is not None
    left_out = _NOT_DECIDING if stops_early else _NOT_DECIDING | _DECIDING_THE_END
    return {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        "shards": shards.fingerprint,
        "seed": job.seed,
        "buckets": {"window_batches": job.buckets.window_batches},
        "architecture": asdict(architecture),
        "train": job.train.model_dump(mode="json", exclude=left_out),
        "pretrained": {file.name: sha256_file(file) for file in files if file.is_file()},
    }


def _num_validation_rows(shards: Shards) -> int:
    return int(shards.manifest["splits"]["validation"]["rows"])


def _demand_measurable(job: JobConfig, shards: Shards) -> None:
    train = job.train
    needs_figures = train.early_stopping_patience is not None or train.final_weights == BEST
    if needs_figures and not _num_validation_rows(shards):
        raise ConfigError(
            "early_stopping_patience and final_weights best need validation rows, the shards "
            "hold none",
            place=str(shards.folder),
            remedy="Raise data.validation_share and run `textlane prepare`, or take both out.",
        )
    if train.best_metric == "entity_f1" and not (job.task is Task.TOKEN and is_bio(shards.labels)):
        raise ConfigError(
            "entity_f1 needs word labels that are BIO tags",
            place="train.best_metric",
            value=train.best_metric,
            remedy="Set it to loss, accuracy or macro_f1.",
        )


def _result(run: TrainingRun, *, is_reused: bool) -> StageResult:
    manifest = read_checkpoint_manifest(run.checkpoint_dir)
    last = next(entry for entry in manifest["checkpoints"] if entry["kind"] == FINAL)
    chosen = chosen_entry(manifest)
    steps = f"{last['step']} steps"
    if last["step"] < run.total_steps:
        steps += f" of {run.total_steps} (stopped early)"
    taken = (
        f", best after step {chosen['step']}"
        if run.job.train.final_weights == BEST and chosen
        else ""
    )
    return StageResult(
        folder=run.job.checkpoint_dir,
        is_reused=is_reused,
        summary=f"{steps}, last loss {last['loss']:.4f}{taken}",
    )
