"""One rank's rows of every step, from the shards and the plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pipeline.contract.shards import load_shards
from pipeline.data.plan import RunPlan, plan_settings_of, rank_slice
from pipeline.data.slices import SliceSettings
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
