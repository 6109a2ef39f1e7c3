"""Ways to run a tiny training: until a step, on ranks that are threads, told or noticed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from train_fakes import build_thread_groups

from pipeline.train.group import SingleGroup
from pipeline.train.history import (
    StepRecord,
    ValidationRecord,
    read_history,
    read_validations,
)
from pipeline.train.loop import run_training
from pipeline.train.training_run import TrainingRun

CPU = torch.device("cpu")


class StoppedError(Exception):
    """Stands for whatever ends a process."""


def run_with(run: TrainingRun, **more: Any) -> int:
    """Train in this process; ``more`` goes to ``run_training``."""
    return run_training(run, group=SingleGroup(), device=CPU, num_threads=1, **more)


def run_until(run: TrainingRun, step: int) -> None:
    """Train and die right after the checkpoint of a step."""

    def stop(record: StepRecord) -> None:
        if record.step == step:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_with(run, on_checkpoint=stop)


def run_together(run: TrainingRun, world_size: int, **more: Any) -> list[int]:
    """Train with ranks that are threads; they share the generators, so leave dropout out."""
    with ThreadPoolExecutor(world_size) as pool:
        ranks = [
            pool.submit(run_training, run, group=group, device=CPU, num_threads=1, **more)
            for group in build_thread_groups(world_size)
        ]
    return [rank.result() for rank in ranks]


def without_dropout(run: TrainingRun) -> TrainingRun:
    """Return the run as other numbers of ranks can repeat it: their dropout draws otherwise."""
    return replace(run, architecture=replace(run.architecture, dropout=0.0))


def timeless(folder: Path) -> list[StepRecord]:
    """Return the history without how long a step took and what memory its process held."""
    free = {"seconds": 0.0, "memory_allocated_bytes": 0, "memory_peak_bytes": 0}
    return [replace(record, **free) for record in read_history(folder)]


def timeless_validations(folder: Path) -> list[ValidationRecord]:
    """Return the measurements without how long they took."""
    return [replace(record, seconds=0.0) for record in read_validations(folder)]
