"""Going on at step 10,000 begins as soon as going on at step 10."""

import shutil
import time

import pytest
import torch
from bench_rows import make_rows, write_rows
from torch.optim.optimizer import register_optimizer_step_post_hook

from pipeline.config import JobConfig
from pipeline.contract.shards import load_shards
from pipeline.train.group import SingleGroup
from pipeline.train.loop import run_training
from pipeline.train.run import open_run, plan_run

pytestmark = pytest.mark.perf

STEPS = (10, 10_000)
BATCH_ROWS = 4
NUM_ROWS = 50_000
ROUNDS = 5
MAX_RATIO = 1.25


class StoppedError(Exception):
    pass


def train_until(run, step):
    """Train and stop once a step is saved."""

    def stop(record):
        if record.step == step:
            raise StoppedError

    with pytest.raises(StoppedError):
        start_training(run, on_checkpoint=stop)


def start_training(run, **options):
    return run_training(
        run, group=SingleGroup(), device=torch.device("cpu"), num_threads=1, **options
    )


def seconds_to_first_step(run):
    """Return the time from the start of the loop to its first update with gradients."""
    gradients = []

    def stop(optimizer, *_):
        gradients.append(
            max(float(p.grad.abs().max()) for p in optimizer.param_groups[0]["params"])
        )
        if gradients[-1] > 0.0:
            raise StoppedError

    hook = register_optimizer_step_post_hook(stop)
    started = time.perf_counter()
    try:
        with pytest.raises(StoppedError):
            start_training(run)
    finally:
        hook.remove()
    return time.perf_counter() - started


def test_going_on_takes_as_long_at_step_10_000_as_at_step_10(tmp_path):
    runs = {}
    rows = make_rows(NUM_ROWS, max_seq_len=12, vocab_size=200)
    for step in STEPS:
        job = JobConfig.model_validate(
            {
                "name": "resume",
                "output_dir": str(tmp_path / str(step)),
                "data": {"files": ["none.csv"]},
                "model": {"max_seq_len": 12, "hidden_size": 8, "num_layers": 1, "num_heads": 1},
                "train": {
                    "epochs": 1,
                    "global_batch": BATCH_ROWS,
                    "micro_batch": BATCH_ROWS,
                    "checkpoint_every_steps": step,
                    "permanent_every_steps": 10**9,
                    "validate_every_steps": 0,
                    "tensorboard": False,
                },
            }
        )
        write_rows(rows, job)
        shards = load_shards(job.shards_dir)
        runs[step] = plan_run(job, shards)
        open_run(runs[step], shards, force=True)
        train_until(runs[step], step)
    for run in runs.values():
        shutil.copytree(run.checkpoint_dir, run.checkpoint_dir.with_name("kept"))

    seconds = {step: [] for step in STEPS}
    for _ in range(ROUNDS):
        for step, run in runs.items():
            shutil.rmtree(run.checkpoint_dir)
            shutil.copytree(run.checkpoint_dir.with_name("kept"), run.checkpoint_dir)
            seconds[step].append(seconds_to_first_step(run))

    early, late = (sorted(seconds[step])[ROUNDS // 2] for step in STEPS)
    print(f"\nfirst step after {early:.3f} s at step {STEPS[0]}, {late:.3f} s at {STEPS[1]}")
    assert late <= MAX_RATIO * early
