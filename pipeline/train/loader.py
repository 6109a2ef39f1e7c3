"""Reads the steps' rows in the training process, or ahead of it in others."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from pipeline.data.plan import StepBatch
from pipeline.train.micro_batches import MicroBatch, MicroBatchReader

OpenReader = Callable[[], MicroBatchReader]

_STEPS_AHEAD = 2
"""Steps that each process reads ahead: one in work, one ready."""


@dataclass(frozen=True, kw_only=True)
class LoadedStep:
    """One step's rows of one rank, on the CPU."""

    step: int
    """Counts from 1."""
    epoch: int
    """Counts from 0."""
    micro_batches: list[MicroBatch]
    """None if the rank has no rows."""


@contextmanager
def open_loader(
    batches: Iterable[StepBatch], *, open_reader: OpenReader, num_workers: int, seed: int
) -> Iterator[Iterator[LoadedStep]]:
    """Yield an iterator over the loaded steps, the same for every number of workers.

    The processes end with the block, whatever ends it; they also end by themselves when the
    training process is killed.

    Args:
        batches: this rank's rows of each step, in the order of the steps.
        open_reader: makes the reader; must be picklable, each process calls it once.
        num_workers: processes that read ahead; 0 reads in this one.
        seed: decides, with the worker's number, the state that the generators of Python,
            numpy and torch have in a process at its start. The batches need none of them.
    """
    if num_workers == 0:
        reader = open_reader()
        yield (_load(reader, batch) for batch in batches)
        return
    loader = DataLoader(
        _StepDataset(open_reader),
        batch_size=None,
        sampler=batches,
        num_workers=num_workers,
        prefetch_factor=_STEPS_AHEAD,
        collate_fn=_as_it_is,
        worker_init_fn=_end_with_parent,
        multiprocessing_context=_start_context(),
        generator=torch.Generator().manual_seed(seed),
    )
    steps: Any = iter(loader)
    try:
        yield steps
    finally:
        # Torch ends its processes when the iterator is collected, but a traceback keeps it.
        steps._shutdown_workers()


class _StepDataset(Dataset[LoadedStep]):
    """What a reading process does with the rows that it is sent."""

    def __init__(self, open_reader: OpenReader) -> None:
        self._open_reader = open_reader
        self._reader: MicroBatchReader | None = None

    def __getitem__(self, batch: StepBatch) -> LoadedStep:
        if self._reader is None:
            self._reader = self._open_reader()
        return _load(self._reader, batch)


def _start_context() -> BaseContext:
    # A child forked from this process would inherit the locks of torch's and Ray's threads as
    # they are at that moment. A server process without such threads imports torch once and is
    # forked instead.
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


def _end_with_parent(worker: int) -> None:
    # Torch's processes watch their parent, which is the server here, and the server lives on
    # while they do: they would outlive a killed training process.
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name=f"end-of-reader-{worker}", daemon=True).start()


def _load(reader: MicroBatchReader, batch: StepBatch) -> LoadedStep:
    micro_batches = reader.read(batch.rows, epoch=batch.epoch)
    return LoadedStep(step=batch.step, epoch=batch.epoch, micro_batches=micro_batches)


def _as_it_is(loaded: Any) -> Any:
    return loaded
