"""Training on batches of similar length against random batches: same model, rows and threads."""

import time
from pathlib import Path

import pytest
import torch

from pipeline.config import load_job
from pipeline.contract.shards import load_shards
from pipeline.data.plan import PlanSettings, build_epoch_plan
from pipeline.data.slices import SliceSettings
from pipeline.model.weights import build_new_model
from pipeline.train.group import SingleGroup
from pipeline.train.micro_batches import MicroBatchReader
from pipeline.train.run import plan_run
from pipeline.train.step import Optimisation, train_step

pytestmark = pytest.mark.perf

ROOT = Path(__file__).parents[2]
NUM_BATCHES = 8
ROUNDS = 3


def tokens_per_second(state, split, batches, *, slices, run):
    reader = MicroBatchReader(
        split,
        slices=slices,
        pad_token_id=run.architecture.pad_token_id,
        is_token_task=False,
    )
    started, tokens = time.perf_counter(), 0
    for batch in batches:
        tokens += train_step(state, reader.read(batch, epoch=0), group=SingleGroup()).tokens
    return tokens / (time.perf_counter() - started)


def test_bucketed_order_against_random_order():
    job = load_job(ROOT / "job_configs/demo_cpu.yaml").settings
    if not job.shards_dir.is_dir():
        pytest.skip(f"{job.shards_dir} is not there; run `make demo` first")
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    split = shards.split("train")
    torch.set_num_threads(2)
    torch.manual_seed(0)
    model, _ = build_new_model(run.architecture, seed=0, pretrained=run.pretrained)
    state = Optimisation(model.train(), job.train, device=torch.device("cpu"))
    state.set_lr(1e-6)
    # Rows in random order are padded together: that is what a plain loop would do.
    slices = {
        name: SliceSettings(
            micro_batch=job.train.micro_batch,
            bucket_edges=shards.bucket_edges if name == "bucketed" else shards.bucket_edges[-1:],
            max_padding=job.buckets.max_padding if name == "bucketed" else 1.0,
        )
        for name in ("random", "bucketed")
    }
    plans = {
        name: build_epoch_plan(
            split.lengths,
            epoch=0,
            settings=PlanSettings(
                batch_rows=job.train.global_batch,
                window_batches=window,
                seed=0,
                longest_first=False,
            ),
        )
        for name, window in (("random", 1), ("bucketed", job.buckets.window_batches))
    }
    batches = {
        name: [plan.batch(step) for step in range(min(NUM_BATCHES, plan.num_batches))]
        for name, plan in plans.items()
    }

    def measure(name, count=NUM_BATCHES):
        chosen = batches[name][:count]
        return tokens_per_second(state, split, chosen, slices=slices[name], run=run)

    measure("random", count=2)

    ratios = []
    for _ in range(ROUNDS):
        speed = {name: measure(name) for name in batches}
        ratios.append(speed["bucketed"] / speed["random"])
        print(f"random {speed['random']:.0f}, bucketed {speed['bucketed']:.0f} real tokens/s")

    print(f"bucketed / random, median of {ROUNDS}: {sorted(ratios)[ROUNDS // 2]:.2f}")
    assert min(ratios) > 1.0
