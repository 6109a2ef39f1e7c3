"""The global order of batches, a pure function of seed, epoch and lengths; numpy only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.config import JobConfig
from pipeline.contract.batching import IntArray


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What decides the order beside the epoch and the lengths."""

    batch_rows: int
    """Rows in a batch at most, over all workers."""
    max_batch_tokens: int | None = None
    """Padded tokens (rows × longest) in a batch at most; None lets only the rows count."""
    window_batches: int
    """Batches of ``batch_rows`` whose rows are sorted by length together."""
    seed: int
    longest_first: bool
    """Put the batch with the most padded tokens first."""

    @property
    def window_rows(self) -> int:
        """Rows that are sorted by length together."""
        return self.batch_rows * self.window_batches


def plan_settings_of(job: JobConfig) -> PlanSettings:
    """Return what decides the order of a job's training rows."""
    return PlanSettings(
        batch_rows=job.train.global_batch,
        max_batch_tokens=job.train.max_batch_tokens,
        window_batches=job.buckets.window_batches,
        seed=job.seed,
        longest_first=job.train.longest_first,
    )


class EpochPlan:
    """The batches of one epoch: every row once, in batches of similar length.

    It does not know the number of workers: :func:`rank_slice` cuts a batch for each.
    """

    def __init__(self, order: IntArray, starts: IntArray) -> None:
        """Use :func:`build_epoch_plan`; the plan owns both arrays and makes them read-only."""
        self.order = order
        """Row indices, batch after batch, ``int64 [rows]``."""
        self.starts = starts
        """Where each batch begins in ``order``, and its end, ``int64 [batches + 1]``."""
        for array in (order, starts):
            array.setflags(write=False)

    @property
    def num_batches(self) -> int:
        """Return the number of batches, the short ones included."""
        return len(self.starts) - 1

    def batch(self, step: int) -> IntArray:
        """Return the row indices of a batch, ``int64 [batch]``, a read-only view; O(1).

        Raises:
            IndexError: the epoch has no such step.
        """
        if not 0 <= step < self.num_batches:
            raise IndexError(f"step {step} of an epoch with {self.num_batches} batches")
        return self.order[self.starts[step] : self.starts[step + 1]]


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """The rows of one optimiser step, over all workers."""

    step: int
    """Counts from 1."""
    epoch: int
    """Counts from 0."""
    rows: IntArray
    """Row indices, ``int64 [batch]``, read-only."""


class RunPlan:
    """All steps of a job, epoch after epoch; any step is found without walking there."""

    def __init__(
        self, lengths: IntArray, *, epoch_steps: Sequence[int], settings: PlanSettings
    ) -> None:
        """Keep what the epochs' plans are made from; only one of them is held at a time.

        Args:
            lengths: tokens of every row, ``int64 [rows]``.
            epoch_steps: steps of each epoch, from :func:`count_steps`.
            settings: what else decides the order.
        """
        self._lengths, self._settings = lengths, settings
        self._ends = np.cumsum(epoch_steps, dtype=np.int64)
        self._epoch = -1
        self._plan: EpochPlan | None = None

    @property
    def total_steps(self) -> int:
        """Return the steps of all epochs."""
        return int(self._ends[-1])

    def batch(self, step: int) -> StepBatch:
        """Return the batch of a step, steps counted from 1 over all epochs.

        O(log epochs) inside the epoch of the call before; the first step of another epoch
        builds that epoch's plan.

        Raises:
            IndexError: the job has no such step.
        """
        if not 1 <= step <= self.total_steps:
            raise IndexError(f"step {step} of a job with steps 1 to {self.total_steps}")
        epoch = int(np.searchsorted(self._ends, step, side="left"))
        first = int(self._ends[epoch - 1]) if epoch else 0
        if self._plan is None or epoch != self._epoch:
            self._plan = build_epoch_plan(self._lengths, epoch=epoch, settings=self._settings)
            self._epoch = epoch
        return StepBatch(step=step, epoch=epoch, rows=self._plan.batch(step - first - 1))


def count_steps(lengths: IntArray, *, epochs: int, settings: PlanSettings) -> tuple[int, ...]:
    """Return the number of batches of every epoch, the short ones included.

    Without ``max_batch_tokens`` all epochs have as many; with it the cuts follow the shuffle,
    so the order of every epoch is made once.

    Raises:
        ValueError: as :func:`build_epoch_plan`.
    """
    _demand_sizes(lengths, settings)
    if settings.max_batch_tokens is None:
        return (-(-len(lengths) // settings.batch_rows),) * epochs
    orders = (
        _sorted_order(_generator(settings.seed, epoch), lengths, settings)
        for epoch in range(epochs)
    )
    return tuple(len(_cut(lengths[order], settings)) - 1 for order in orders)


def build_epoch_plan(lengths: IntArray, *, epoch: int, settings: PlanSettings) -> EpochPlan:
    """Return the plan of one epoch: shuffle, sort inside windows, cut, shuffle the batches.

    Equal arguments give the equal plan on every machine. No row is dropped. Without
    ``max_batch_tokens`` all batches have ``batch_rows`` rows but one, which holds the rest.
    With it no batch costs more padded tokens, but for a single row that is longer: it is a
    batch of its own.

    Example: lengths ``[3, 9, 4, 8]`` in batches of 2 and a window of 2 batches give the
    batches ``{0, 2}`` and ``{1, 3}`` in an order that depends on seed and epoch; with 9
    tokens at most ``{0, 2}``, ``{3}`` and ``{1}``.

    Raises:
        ValueError: no rows, or a size below 1.
    """
    _demand_sizes(lengths, settings)
    generator = _generator(settings.seed, epoch)
    order = _sorted_order(generator, lengths, settings)
    in_order = lengths[order]
    starts = _cut(in_order, settings)
    sizes = np.diff(starts)
    sequence = _random_order(generator, len(sizes))
    if settings.longest_first:
        costs = sizes * np.maximum.reduceat(in_order, starts[:-1])
        first = int(np.argmax(costs[sequence]))
        sequence[: first + 1] = np.roll(sequence[: first + 1], 1)
    moved_starts = np.append(0, np.cumsum(sizes[sequence]))
    shift = np.repeat(starts[sequence] - moved_starts[:-1], sizes[sequence])
    return EpochPlan(order[np.arange(len(order)) + shift], moved_starts)


def rank_slice(batch: IntArray, lengths: IntArray, *, rank: int, world_size: int) -> IntArray:
    """Return the rows of a batch that one worker takes, ``int64 [rows]``, short to long.

    Over all ranks each row comes once, and no rank has more than one row above another; with
    fewer rows than workers some get none. The rows are dealt short to long, each round in the
    other direction; where they do not fill all rounds, the first one is short. So two ranks
    differ by at most ``longest - shortest`` tokens of the batch if the rows fill all rounds,
    and by at most ``longest`` otherwise: a missing row counts as one without tokens, the
    rounds lie one after the other between shortest and longest, and two ranks can differ in
    each round by no more than the round's own difference.

    Example: batch ``[5, 6, 7]`` with lengths 9, 3, 4 over 2 ranks -> ``[6, 7]`` and ``[5]``.

    Args:
        batch: row indices, from :meth:`EpochPlan.batch`.
        lengths: tokens of every row of the split, ``int64 [rows of the split]``.
        rank: the worker, from 0.
        world_size: number of workers.

    Raises:
        ValueError: the rank is not below ``world_size``.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in a world of {world_size}")
    short_to_long = batch[np.argsort(lengths[batch], kind="stable")]
    rounds = np.arange(-(-len(batch) // world_size))
    places = np.where(rounds % 2 == 0, world_size - 1 - rank, rank)
    num_missing = len(rounds) * world_size - len(batch)
    dealt = rounds * world_size + places - num_missing
    return short_to_long[dealt[dealt >= 0]]


def _demand_sizes(lengths: IntArray, settings: PlanSettings) -> None:
    sizes = (settings.batch_rows, settings.window_batches, settings.max_batch_tokens or 1)
    if len(lengths) == 0 or min(sizes) < 1 or settings.max_batch_tokens == 0:
        raise ValueError(f"need rows and sizes >= 1, got {len(lengths)} rows and {settings}")


def _generator(seed: int, epoch: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence([seed, epoch]))


def _random_order(generator: np.random.PCG64, count: int) -> IntArray:
    # Raw bits are stable across numpy releases, `Generator.permutation` is not (NEP 19):
    # a run resumed after an upgrade must meet the same batches.
    draws = np.asarray(generator.random_raw(count), dtype=np.uint64)
    return np.argsort(draws, kind="stable").astype(np.int64, copy=False)


def _sorted_order(
    generator: np.random.PCG64, lengths: IntArray, settings: PlanSettings
) -> IntArray:
    """Return all rows shuffled, then sorted by length inside each window, ``int64 [rows]``."""
    shuffled = _random_order(generator, len(lengths))
    # Up to 16 bits numpy's stable sort is a radix sort, ten times as fast.
    narrow = lengths.astype(np.min_scalar_type(int(lengths.max())))
    window_rows = min(settings.window_rows, len(lengths))
    num_whole = len(lengths) // window_rows * window_rows
    windows, rest = shuffled[:num_whole].reshape(-1, window_rows), shuffled[num_whole:]
    # Stable: rows of equal length keep their shuffled order, so batch mates change by epoch.
    sorting = np.argsort(narrow[windows], axis=1, kind="stable")
    in_windows = np.take_along_axis(windows, sorting, axis=1)
    in_rest = rest[np.argsort(narrow[rest], kind="stable")]
    return np.concatenate([in_windows.ravel(), in_rest])


def _cut(in_order: IntArray, settings: PlanSettings) -> IntArray:
    """Return where each batch begins, and the end: every batch as large as the limits allow.

    Args:
        in_order: lengths, ascending inside each window.
        settings: the limits.
    """
    num_rows, window_rows = len(in_order), settings.window_rows
    if settings.max_batch_tokens is None:
        return np.append(np.arange(0, num_rows, settings.batch_rows), num_rows)
    most_rows = settings.max_batch_tokens // np.maximum(in_order, 1)
    ends = np.arange(1, num_rows + 1)
    # The earliest start of a batch that ends with each row. It never falls from one row to the
    # next, so the last row of a batch with a given start is found by bisection.
    earliest = np.maximum(
        ends - np.clip(most_rows, 1, settings.batch_rows), (ends - 1) // window_rows * window_rows
    )
    starts = []
    current = np.arange(0, num_rows, window_rows)
    while len(current):  # the next batch of all windows at once
        starts.append(current)
        following = np.searchsorted(earliest, current, side="right")
        current = following[(following % window_rows != 0) & (following < num_rows)]
    return np.append(np.sort(np.concatenate(starts)), num_rows)
