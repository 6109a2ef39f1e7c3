"""The training of one worker, start to end, in plain torch; Ray is not needed to run it."""

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from pipeline.contract.errors import ConfigError, TextlaneError, TrainingError, WeightsError
from pipeline.model.weights import build_new_model
from pipeline.train.checkpoint import drop_later_checkpoints
from pipeline.train.checkpoint_writer import CheckpointWriter
from pipeline.train.group import Group
from pipeline.train.guards import demand_steps
from pipeline.train.history import StepRecord
from pipeline.train.memory import check_memory
from pipeline.train.observers import Observer
from pipeline.train.recorder import Recorder
from pipeline.train.resume import resume
from pipeline.train.step import Optimisation
from pipeline.train.step_rows import open_steps
from pipeline.train.training_run import TrainingRun
from pipeline.train.worker import Worker

FINAL_ERRORS = (ConfigError, TrainingError, WeightsError)
"""Raised on every rank alike and again by the next try."""

Done = TypeVar("Done")
OnCheckpoint = Callable[[StepRecord], None]
PollNotice = Callable[[], str | None]


def run_training(  # noqa: PLR0913 — what a caller may give is one list; most callers give none
    run: TrainingRun,
    *,
    group: Group,
    device: torch.device,
    num_threads: int,
    on_checkpoint: OnCheckpoint | None = None,
    poll_notice: PollNotice | None = None,
    observers: Sequence[Observer] = (),
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
        on_checkpoint: called on every rank after each checkpoint has been handed to the thread
            that writes it.
        poll_notice: called on every rank after every step, with the same answer on all; the
            first text has a checkpoint written at once, then the training goes on.
        observers: told of everything on rank 0; closed on every rank, whatever happens.

    Returns:
        The step that the run went on from; 0 for a new one.

    Raises:
        ConfigError: the model by import path cannot be built; on every rank.
        WeightsError: the pretrained weights do not fit; on every rank.
        TrainingError: a loss is not finite, every step is skipped, an epoch has no steps, a
            device is too small, or the checkpoint is of another training; on every rank.
        FolderError: a checkpoint could not be written; on rank 0 alone.
    """
    demand_steps(run.epoch_steps)
    torch.set_num_threads(num_threads)
    with ExitStack() as stack:
        for observer in observers:
            stack.callback(observer.close)
        model = _do_together(group, partial(_build_model, run))
        _demand_memory(run, group=group, device=device)
        state = Optimisation(model, run.job.train, device=device)
        start = resume(run, state, group=group)
        if start.is_finished:
            return start.step
        model.train()
        writer = None
        if group.rank == 0:
            best_step = start.best.step
            drop_later_checkpoints(run.checkpoint_dir, step=start.step, best_step=best_step)
            keep = run.job.train.keep_checkpoints
            writer = stack.enter_context(CheckpointWriter(run.checkpoint_dir, keep=keep))
        recorder = Recorder(
            run.checkpoint_dir, rank=group.rank, after_step=start.step, observers=observers
        )
        stack.callback(recorder.close)
        worker = Worker(run, state, start, group=group, recorder=recorder, writer=writer)
        steps = stack.enter_context(open_steps(run, group=group, first=start.step))
        is_noticed = False
        while not worker.is_done:
            record = worker.learn(steps)
            notice = poll_notice() if poll_notice and not is_noticed else None
            is_noticed = is_noticed or notice is not None
            is_saved = worker.save_if_due(record, notice=notice)
            if is_saved and on_checkpoint:
                on_checkpoint(record)
    return start.step


def _build_model(run: TrainingRun) -> nn.Module:
    return build_new_model(run.architecture, seed=run.job.seed, pretrained=run.pretrained)[0]


def _demand_memory(run: TrainingRun, *, group: Group, device: torch.device) -> None:
    if run.memory is None:
        return
    hosts = group.gather_objects(socket.gethostname())
    num_here = hosts.count(hosts[group.rank])
    _do_together(group, partial(check_memory, run.memory, device, num_here))


def _do_together(group: Group, do: Callable[[], Done]) -> Done:
    """Return what this rank did; all ranks stop if one cannot, or they would wait for it."""
    own: TextlaneError | None = None
    try:
        done = do()
    except FINAL_ERRORS as error:
        own = error
    if errors := [error for error in group.gather_objects(own) if error]:
        raise errors[0]
    return done
