"""The global order of batches, a pure function of seed, epoch and lengths; numpy only."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipeline.contract.batching import IntArray, padded_token_count


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What decides the order beside the epoch and the lengths."""

    batch_rows: int
    """Rows in a batch, over all workers."""
    window_batches: int
    """Batches whose rows are sorted by length together."""
    seed: int
    longest_first: bool
    """Put the batch with the most padded tokens first."""


class EpochPlan:
    """The batches of one epoch: every row once, in batches of similar length.

    It does not know the number of workers: :func:`rank_slice` cuts a batch for each.
    """

    def __init__(self, order: IntArray, starts: IntArray) -> None:
        """Use :func:`build_epoch_plan`.

        Args:
            order: row indices, batch after batch, ``int64 [rows]``.
            starts: where each batch begins in ``order``, and its end, ``int64 [batches + 1]``.
        """
        self._order = order
        self._starts = starts
        self._order.setflags(write=False)

    @property
    def num_batches(self) -> int:
        """Return the number of batches, the short one included."""
        return len(self._starts) - 1

    def batch(self, step: int) -> IntArray:
        """Return the row indices of a batch, ``int64 [batch]``, a read-only view; O(1).

        Raises:
            IndexError: the epoch has no such step.
        """
        if not 0 <= step < self.num_batches:
            raise IndexError(f"step {step} of an epoch with {self.num_batches} batches")
        return self._order[self._starts[step] : self._starts[step + 1]]


def build_epoch_plan(lengths: IntArray, *, epoch: int, settings: PlanSettings) -> EpochPlan:
    """Return the plan of one epoch: shuffle, sort inside windows, cut, shuffle the batches.

    Equal arguments give the equal plan on every machine. All batches have ``batch_rows``
    rows but one, which holds the rest; no row is dropped.

    Example: lengths ``[3, 9, 4, 8]`` in batches of 2 and a window of 2 batches give the
    batches ``{0, 2}`` and ``{1, 3}`` in an order that depends on seed and epoch.

    Raises:
        ValueError: no rows, or ``batch_rows`` or ``window_batches`` below 1.
    """
    num_rows, batch_rows = len(lengths), settings.batch_rows
    if num_rows == 0 or batch_rows < 1 or settings.window_batches < 1:
        raise ValueError(f"need rows and sizes >= 1, got {num_rows} rows and {settings}")
    lengths = np.asarray(lengths, dtype=np.int64)
    generator = np.random.PCG64(np.random.SeedSequence([settings.seed, epoch]))
    shuffled = _random_order(generator, num_rows)
    window = np.arange(num_rows) // (batch_rows * settings.window_batches)
    # Stable: rows of equal length keep their shuffled order, so batch mates change by epoch.
    order = shuffled[np.lexsort((lengths[shuffled], window))]
    cuts = np.append(np.arange(0, num_rows, batch_rows), num_rows)
    batches = [order[begin:end] for begin, end in pairwise(cuts)]
    sequence = list(_random_order(generator, len(batches)))
    if settings.longest_first:
        costs = [padded_token_count(lengths[batches[index]]) for index in sequence]
        sequence.insert(0, sequence.pop(int(np.argmax(costs))))
    in_sequence = [batches[index] for index in sequence]
    starts = np.cumsum([0, *(len(batch) for batch in in_sequence)], dtype=np.int64)
    return EpochPlan(np.concatenate(in_sequence), starts)


def _random_order(generator: np.random.PCG64, count: int) -> IntArray:
    # Raw bits are stable across numpy releases, `Generator.permutation` is not (NEP 19):
    # a run resumed after an upgrade must meet the same batches.
    draws = np.asarray(generator.random_raw(count), dtype=np.uint64)
    return np.argsort(draws, kind="stable").astype(np.int64)


def rank_slice(batch: IntArray, lengths: IntArray, *, rank: int, world_size: int) -> IntArray:
    """Return the rows of a batch that one worker takes, ``int64 [rows]``, short to long.

    The rows are dealt in turn from short to long, so that every worker gets like lengths.
    Over all ranks each row comes once, and no rank has more than one row above another;
    with fewer rows than workers some get none.

    Example: batch ``[5, 6, 7]`` with lengths 9, 3, 4 over 2 ranks -> ``[6, 5]`` and ``[7]``.

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
    short_to_long = batch[np.argsort(np.asarray(lengths)[batch], kind="stable")]
    return short_to_long[rank::world_size]
