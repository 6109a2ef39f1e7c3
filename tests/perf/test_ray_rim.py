"""What Ray Train costs around the loop: the same job on Ray and without, in turn."""

import pytest
import torch
from bench_rows import make_rows, write_rows
from timing import THREADS

from pipeline.config import JobConfig
from pipeline.ray_session import ray_session
from pipeline.train.group import SingleGroup
from pipeline.train.history import read_history
from pipeline.train.loop import run_training
from pipeline.train.run import train

pytestmark = [pytest.mark.perf, pytest.mark.ray]

ROUNDS = 3
NUM_STEPS = 30
BATCH_ROWS = 32
SEQ_LEN = 64
MAX_COST = 0.03


def fit_without_ray(run):
    run_training(run, group=SingleGroup(), device=torch.device("cpu"), num_threads=THREADS)


def seconds_of(job, fit):
    """Return the seconds of every step but the first two, which warm up."""
    train(job, force=True, fit=fit)
    return [record.seconds for record in read_history(job.checkpoint_dir)][2:]


def test_ray_costs_next_to_nothing_around_the_loop(tmp_path):
    job = JobConfig.model_validate(
        {
            "name": "rim",
            "output_dir": str(tmp_path),
            "data": {"files": ["none.csv"]},
            "model": {
                "max_seq_len": SEQ_LEN,
                "hidden_size": 384,
                "num_layers": 6,
                "num_heads": 12,
            },
            "train": {"epochs": 1, "global_batch": BATCH_ROWS, "base_lr": 1e-5},
            "ray": {"num_workers": 1, "threads_per_worker": THREADS},
        }
    )
    # All steps cost the same.
    rows = make_rows(
        NUM_STEPS * BATCH_ROWS, max_seq_len=SEQ_LEN, vocab_size=30_522, is_padded=False
    )
    write_rows(rows, job, num_buckets=1)

    ratios = []
    with ray_session(job.ray):
        for _ in range(ROUNDS):
            plain, on_ray = (
                sorted(seconds_of(job, fit))[(NUM_STEPS - 2) // 2]
                for fit in (fit_without_ray, None)
            )
            ratios.append(on_ray / plain)
            print(f"\nmedian step: {plain:.3f} s without Ray, {on_ray:.3f} s on Ray")

    cost = sorted(ratios)[ROUNDS // 2] - 1.0
    print(f"Ray's rim: {cost:+.1%}")
    assert cost <= MAX_COST
