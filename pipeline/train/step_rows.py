"""One rank's rows of every step, from the shards and the plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from pipeline.config import JobConfig
from pipeline.contract.shards import Shards, load_shards
from pipeline.data.plan import RunPlan, build_epoch_plan, plan_settings_of, rank_slice
from pipeline.data.slices import SliceSettings, cut_slices
from pipeline.train.group import Group, mix_seed
from pipeline.train.loader import LoadedStep, open_loader
from pipeline.train.micro_batches import MicroBatchReader
from pipeline.train.training_run import TrainingRun


@contextmanager
def open_steps(run: TrainingRun, *, group: Group, first: int) -> Iterator[Iterator[LoadedStep]]:
    """Yield this rank's part of every step after ``first``; none before is walked through."""
    lengths = load_shards(run.shards_dir, verify=False).split("train").lengths
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


def find_worst_pass(job: JobConfig, shards: Shards) -> tuple[int, int]:
    """Return rows and tokens a row of the forward pass with most padded tokens.

    Of several the one with the longest rows: attention grows with the square of their length.
    Measured on the first epoch's plan; other epochs draw other batches, of much the same sizes.
    """
    lengths = shards.split("train").lengths
    plan = build_epoch_plan(lengths, epoch=0, settings=plan_settings_of(job))
    least_workers = job.ray.worker_range[0]
    most_rows = min(job.train.micro_batch, -(-job.train.global_batch // least_workers))
    in_order = lengths[plan.order]
    starts = cut_slices(in_order, plan.starts, _slices_of(job, shards, micro_batch=most_rows))
    rows, longest = np.diff(starts), in_order[starts[1:] - 1]
    worst = int(np.lexsort((longest, rows * longest))[-1])
    return int(rows[worst]), int(longest[worst])


def _slices_of(job: JobConfig, shards: Shards, *, micro_batch: int) -> SliceSettings:
    return SliceSettings(
        micro_batch=micro_batch,
        bucket_edges=shards.bucket_edges,
        max_padding=job.buckets.max_padding,
    )


def _open_reader(run: TrainingRun) -> MicroBatchReader:
    shards = load_shards(run.shards_dir, verify=False)
    return MicroBatchReader(
        shards.split("train"),
        slices=_slices_of(run.job, shards, micro_batch=run.job.train.micro_batch),
        pad_token_id=run.architecture.pad_token_id,
        is_token_task=run.architecture.is_token_task,
        multi_hot_size=run.architecture.multi_hot_size,
        augmentation=run.augmentation,
    )
