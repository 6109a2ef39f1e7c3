"""A checkpoint of a MiniLM's size must not hold the loop up for as long as a step takes."""

from itertools import pairwise

import pytest
import torch
from bench_rows import PRETRAINED, read_reviews, write_rows
from timing import THREADS, update_times

from pipeline.config import JobConfig
from pipeline.contract.shards import load_shards
from pipeline.train.group import SingleGroup
from pipeline.train.loop import run_training
from pipeline.train.run import open_run, plan_run

pytestmark = pytest.mark.perf

BATCH_ROWS = 32
NUM_STEPS = 24
CHECKPOINT_EVERY = 6
SEQ_LEN = 128


def test_a_checkpoint_holds_the_loop_up_for_less_than_a_step(tmp_path):
    rows = read_reviews(4 * NUM_STEPS * BATCH_ROWS, max_seq_len=SEQ_LEN)
    # All steps cost the same: rows of full length only.
    whole = [number for number, ids in enumerate(rows.ids) if len(ids) == SEQ_LEN]
    whole = whole[: NUM_STEPS * BATCH_ROWS]
    rows = type(rows)(
        ids=[rows.ids[number] for number in whole],
        labels=[rows.labels[number] for number in whole],
        encoder=rows.encoder,
    )
    job = JobConfig.model_validate(
        {
            "name": "stall",
            "output_dir": str(tmp_path),
            "data": {"files": ["none.csv"]},
            "model": {"pretrained": PRETRAINED, "max_seq_len": SEQ_LEN, "pooling": "mean"},
            "train": {
                "epochs": 1,
                "base_lr": 1e-5,
                "checkpoint_every_steps": CHECKPOINT_EVERY,
                "validate_every_steps": 0,
            },
        }
    )
    write_rows(rows, job, num_buckets=1)
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    open_run(run, shards, force=True)

    with update_times() as times:
        run_training(run, group=SingleGroup(), device=torch.device("cpu"), num_threads=THREADS)

    times = times[-NUM_STEPS:]
    # steps[n]: from the update of step n to that of step n + 1; a save lies between the two.
    steps = {n + 1: end - start for n, (start, end) in enumerate(pairwise(times))}
    saving = [n for n in steps if n % CHECKPOINT_EVERY == 0]
    writing = [n + 1 for n in saving if n + 1 in steps]
    free = [steps[n] for n in steps if n > 2 and n not in saving + writing]
    step_s = _median(free)
    stall_s = _median([steps[n] for n in saving]) - step_s
    beside_s = _median([steps[n] for n in writing]) - step_s
    size = max(path.stat().st_size for path in job.checkpoint_dir.glob("step_*.pt"))
    print(
        f"\ncheckpoint of {size / 1e6:.0f} MB, step {step_s:.2f} s: with a save {stall_s:+.2f} s "
        f"({stall_s / step_s:+.0%} of a step), the step after it {beside_s:+.2f} s"
    )
    assert stall_s < step_s


def _median(values):
    return sorted(values)[len(values) // 2]
