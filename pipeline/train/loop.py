"""The training of one worker, start to end, in plain torch; Ray is not needed to run it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pipeline.config import JobConfig
from pipeline.contract.shards import ShardSplit, load_shards
from pipeline.data.augment import Augmentation
from pipeline.data.plan import RunPlan, plan_settings_of, rank_slice
from pipeline.data.slices import SliceSettings
from pipeline.model.architecture import Architecture
from pipeline.model.checkpoint_manifest import FINAL, PERMANENT, ROLLING
from pipeline.model.weights import build_new_model
from pipeline.train.checkpoint import (
    capture_state,
    drop_later_checkpoints,
    find_latest_checkpoint,
    load_checkpoint,
    restore_state,
    save_checkpoint,
)
from pipeline.train.device_memory import read_memory, reset_peak
from pipeline.train.group import Group, mix_seed, seed_step
from pipeline.train.history import HistoryWriter, StepRecord
from pipeline.train.loader import LoadedStep, open_loader
from pipeline.train.micro_batches import MicroBatchReader
from pipeline.train.schedule import build_schedule, lr_at
from pipeline.train.step import Optimisation, train_step

OnCheckpoint = Callable[[StepRecord], None]


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """One training as every worker gets it; it can be pickled."""

    job: JobConfig
    architecture: Architecture
    shards_dir: Path
    checkpoint_dir: Path
    """Has its manifest already; all workers must reach it (shared storage on a cluster)."""
    pretrained: Path | None
    epoch_steps: tuple[int, ...]
    """Optimiser steps of each epoch."""
    augmentation: Augmentation | None
    facts: dict[str, Any]
    """Fingerprints and versions, kept in every checkpoint."""

    @property
    def total_steps(self) -> int:
        """Optimiser steps of all epochs."""
        return sum(self.epoch_steps)


def run_training(
    run: TrainingRun,
    *,
    group: Group,
    device: torch.device,
    num_threads: int,
    on_checkpoint: OnCheckpoint | None = None,
) -> int:
    """Train from the latest good checkpoint, or from the start, to the end.

    Steps, order of rows, augmentation and dropout are functions of the seed, the step and the
    rank, so a resumed run repeats an unbroken one (bit for bit on the same CPU with as many
    threads).

    Args:
        run: the training.
        group: this worker's rank and its sums over all ranks.
        device: where the model runs.
        num_threads: torch's threads in this process.
        on_checkpoint: called on every rank after each checkpoint.

    Returns:
        The step that the run went on from; 0 for a new one.

    Raises:
        TrainingError: a loss is not finite; on every rank, with the rows.
    """
    torch.set_num_threads(num_threads)
    model, _ = build_new_model(run.architecture, seed=run.job.seed, pretrained=run.pretrained)
    state = Optimisation(model, run.job.train, device=device)
    latest = find_latest_checkpoint(run.checkpoint_dir)
    first = restore_state(state, load_checkpoint(latest)) if latest else 0
    model.train()
    with _open_steps(run, group=group, first=first) as steps:
        worker = _Worker(run, state, group=group, num_threads=num_threads)
        if group.rank > 0:
            for _ in range(first, run.total_steps):
                _call_after_checkpoint(run, worker.run_step(steps), on_checkpoint)
            return first
        drop_later_checkpoints(run.checkpoint_dir, step=first)
        with HistoryWriter(run.checkpoint_dir, after_step=first) as history:
            for _ in range(first, run.total_steps):
                record = worker.run_step(steps)
                history.append(record)
                worker.save_if_due(record)
                _call_after_checkpoint(run, record, on_checkpoint)
    return first


def checkpoint_kind(job: JobConfig, *, step: int, total_steps: int) -> str | None:
    """Return the kind of checkpoint that is due after a step, None for none."""
    if step == total_steps:
        return FINAL
    if step % job.train.permanent_every_steps == 0:
        return PERMANENT
    return ROLLING if step % job.train.checkpoint_every_steps == 0 else None


def _call_after_checkpoint(
    run: TrainingRun, record: StepRecord, on_checkpoint: OnCheckpoint | None
) -> None:
    kind = checkpoint_kind(run.job, step=record.step, total_steps=run.total_steps)
    if kind and on_checkpoint:
        on_checkpoint(record)


def _open_split(run: TrainingRun) -> ShardSplit:
    return load_shards(run.shards_dir, verify=False).split("train")


def _open_reader(run: TrainingRun) -> MicroBatchReader:
    shards = load_shards(run.shards_dir, verify=False)
    return MicroBatchReader(
        shards.split("train"),
        slices=SliceSettings(
            micro_batch=run.job.train.micro_batch,
            bucket_edges=shards.bucket_edges,
            max_padding=run.job.buckets.max_padding,
        ),
        pad_token_id=run.architecture.pad_token_id,
        is_token_task=run.architecture.is_token_task,
        multi_hot_size=run.architecture.multi_hot_size,
        augmentation=run.augmentation,
    )


@contextmanager
def _open_steps(run: TrainingRun, *, group: Group, first: int) -> Iterator[Iterator[LoadedStep]]:
    """Yield this rank's part of every step after ``first``."""
    lengths = _open_split(run).lengths
    plan = RunPlan(lengths, epoch_steps=run.epoch_steps, settings=plan_settings_of(run.job))
    batches = map(plan.batch, range(first + 1, run.total_steps + 1))
    dealt = (
        replace(
            batch,
            rows=rank_slice(batch.rows, lengths, rank=group.rank, world_size=group.world_size),
        )
        for batch in batches
    )
    with open_loader(
        dealt,
        open_reader=partial(_open_reader, run),
        num_workers=run.job.train.loader_workers,
        seed=mix_seed(run.job.seed, step=0, rank=group.rank),
    ) as steps:
        yield steps


class _Worker:
    """What one rank holds between steps."""

    def __init__(
        self, run: TrainingRun, state: Optimisation, *, group: Group, num_threads: int
    ) -> None:
        self._run, self._state, self._group = run, state, group
        self._schedule = build_schedule(run.job.train, total_steps=run.total_steps)
        self._facts = {**run.facts, "world_size": group.world_size, "num_threads": num_threads}

    def run_step(self, steps: Iterator[LoadedStep]) -> StepRecord:
        started = time.perf_counter()
        reset_peak(self._state.device)
        loaded = next(steps)
        step = loaded.step
        micro_batches = [micro.to(self._state.device) for micro in loaded.micro_batches]
        lr = lr_at(self._schedule, step)
        self._state.set_lr(lr)
        seed_step(self._run.job.seed, step=step, rank=self._group.rank)
        result = train_step(self._state, micro_batches, group=self._group)
        seconds = time.perf_counter() - started
        memory = read_memory(self._state.device)
        return StepRecord(
            step=step,
            epoch=loaded.epoch,
            loss=result.loss,
            lr=lr,
            grad_norm=None if result.is_skipped else result.grad_norm,
            tokens=result.tokens,
            padding_share=1.0 - result.tokens / result.padded_tokens,
            seconds=seconds,
            loss_scale=result.loss_scale,
            skipped=result.is_skipped,
            micro_batch=self._run.job.train.micro_batch,
            longest=max((micro.input_ids.shape[1] for micro in micro_batches), default=0),
            memory_allocated_bytes=memory.allocated_bytes,
            memory_reserved_bytes=memory.reserved_bytes,
            memory_peak_bytes=memory.peak_bytes,
        )

    def save_if_due(self, record: StepRecord) -> None:
        run, train = self._run, self._run.job.train
        kind = checkpoint_kind(run.job, step=record.step, total_steps=run.total_steps)
        if kind is None:
            return
        state = capture_state(self._state, step=record.step, facts=self._facts)
        save_checkpoint(
            run.checkpoint_dir,
            state,
            step=record.step,
            loss=record.loss,
            kind=kind,
            keep=train.keep_checkpoints,
        )
