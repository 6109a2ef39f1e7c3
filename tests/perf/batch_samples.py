"""Some batches of an order of rows that stand for all of them.

An epoch would take minutes, so a contestant gets a sample that keeps the distribution of lengths
of its own order.
"""

import numpy as np
import torch
from bench_rows import Rows
from transformers.trainer_pt_utils import get_length_grouped_indices

from pipeline.contract.batching import IntArray
from pipeline.data.plan import PlanSettings, build_epoch_plan

BATCH_ROWS = 32
_SEEDS = 400


def sample_batches(order: IntArray, lengths: IntArray, *, num_batches: int) -> list[IntArray]:
    """Return batches of an order, evenly from its shortest to its longest, shuffled."""
    batches = [order[start : start + BATCH_ROWS] for start in range(0, len(order), BATCH_ROWS)]
    batches = sorted(
        (batch for batch in batches if len(batch) == BATCH_ROWS),
        key=lambda batch: int(lengths[batch].sum()),
    )
    places = (np.arange(num_batches) + 0.5) * len(batches) / num_batches
    chosen = [batches[int(place)] for place in places]
    return [chosen[index] for index in np.random.default_rng(1).permutation(num_batches)]


def random_order(rows: Rows) -> IntArray:
    """Return the order of Trainer's default sampler."""
    return torch.randperm(len(rows.ids), generator=torch.Generator().manual_seed(0)).numpy()


def grouped_order(rows: Rows) -> IntArray:
    """Return the order of Trainer's group_by_length, from its own function."""
    generator = torch.Generator().manual_seed(0)
    return np.array(
        get_length_grouped_indices(rows.lengths.tolist(), BATCH_ROWS, generator=generator)
    )


def sorted_order(rows: Rows) -> IntArray:
    """Return all rows short to long: no order pads less."""
    return np.argsort(rows.lengths, kind="stable")


def tokens_of(rows: Rows, batches: list[IntArray]) -> list[int]:
    """Return the tokens of every batch, without padding."""
    return [int(rows.lengths[batch].sum()) for batch in batches]


def plan_settings(seed: int, *, window: int) -> PlanSettings:
    """Return our plan of batches of the common size."""
    return PlanSettings(
        batch_rows=BATCH_ROWS, window_batches=window, seed=seed, longest_first=False
    )


def typical_seed(lengths: IntArray, *, num_batches: int, window: int) -> int:
    """Return the seed whose first batches are spread like those of the whole epoch."""

    def distance(seed: int) -> float:
        plan = build_epoch_plan(lengths, epoch=0, settings=plan_settings(seed, window=window))
        sums = [int(lengths[plan.batch(step)].sum()) for step in range(plan.num_batches)]
        places = (np.arange(num_batches) + 0.5) * len(sums) / num_batches
        wanted = np.sort(sums)[places.astype(int)]
        found = np.sort(sums[:num_batches])
        return float(np.abs(found - wanted).sum() + abs(found.sum() - wanted.sum()))

    return min(range(_SEEDS), key=distance)
