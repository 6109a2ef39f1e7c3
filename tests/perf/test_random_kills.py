"""Twenty kills at random moments of a training: none changes what is learned."""

import random
import time

import pytest
from killed_training import (
    demand_equal,
    demand_sound,
    finish,
    learned,
    read_order,
    start_alone,
)
from train_samples import build_job, write_shards

from pipeline.contract.folder import read_manifest

pytestmark = pytest.mark.perf

NUM_KILLS = 20
LONGEST_LIFE_S = 3.0
ROWS = 600
SETTINGS = {
    "epochs": 10,
    "global_batch": 8,
    "micro_batch": 2,
    "base_lr": 0.3,
    "checkpoint_every_steps": 7,
    "permanent_every_steps": 500,
    "augmentation": {"token_dropout": 0.1},
}


def build_written_job(folder):
    job = build_job(folder, **SETTINGS)
    write_shards(job, rows=ROWS)
    return job


def kill_at_random(job, log, life_s):
    """Return whether the process was killed before it ended by itself."""
    process = start_alone(job, log=log)
    process.join(life_s)
    process.kill()
    process.join()
    assert process.exitcode in (0, -9), log.with_suffix(".txt").read_text()
    return process.exitcode == -9


def what_is_left(folder):
    """Return the step of the newest checkpoint, and files that no manifest names."""
    if not (folder / "manifest.json").exists():
        return 0, []
    demand_sound(folder)
    entries = read_manifest(folder)["checkpoints"]
    named = {entry["file"] for entry in entries}
    left = [path.name for path in folder.glob("*step_*") if path.name not in named]
    return max((entry["step"] for entry in entries), default=0), left


def test_twenty_kills_at_random_moments_change_nothing(tmp_path):
    generator = random.Random(time.time_ns())
    unbroken = build_written_job(tmp_path / "unbroken")
    log = tmp_path / "unbroken.jsonl"
    finish(start_alone(unbroken, log=log), log=log)
    expected, order = learned(unbroken.checkpoint_dir), read_order([log])
    print(f"\n{len(order)} steps; a process lives up to {LONGEST_LIFE_S} s")
    print("kill  run  lived s  steps of this life  newest checkpoint  not in the manifest")

    kills, runs = 0, 0
    while kills < NUM_KILLS:
        runs += 1
        job = build_written_job(tmp_path / f"run{runs}")
        for life in range(NUM_KILLS):
            log = tmp_path / f"run{runs}-{life}.jsonl"
            life_s = generator.uniform(0.0, LONGEST_LIFE_S)
            was_killed = kills < NUM_KILLS and kill_at_random(job, log, life_s)
            if not was_killed:
                break
            kills += 1
            step, left = what_is_left(job.checkpoint_dir)
            steps = sorted(read_order([log])) if log.exists() else []
            span = f"{steps[0]}–{steps[-1]}" if steps else "none"
            print(f"{kills:4}{runs:5}{life_s:9.2f}  {span:>18}{step:19}  {', '.join(left)}")
            found = read_order([log]) if log.exists() else {}
            assert found == {step: order[step] for step in found}
        finish(start_alone(job, log=log), log=log)
        demand_equal(learned(job.checkpoint_dir), expected)
    print(f"{kills} kills in {runs} runs: weights, optimiser, losses, rates and rows bit-equal")
