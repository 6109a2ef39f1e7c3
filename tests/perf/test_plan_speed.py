"""The plan, the bucket edges and the padding figures of ten million rows, lengths only."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline.contract.batching import choose_bucket_edges
from pipeline.data.padding import describe_buckets, padding_figures
from pipeline.data.plan import PlanSettings, build_epoch_plan
from pipeline.data.slices import SliceSettings

pytestmark = pytest.mark.perf

ROOT = Path(__file__).parents[2]
NUM_ROWS = 10_000_000
MAX_PLAN_S = 10.0
MAX_PEAK_MIB = 2048


def measure():
    """Print one line each: name, wall seconds, CPU seconds, peak memory of the process so far."""
    draws = np.random.default_rng(0).normal(4.0, 1.0, NUM_ROWS)
    lengths = np.clip(np.exp(draws), 4, 512).astype(np.int64)
    del draws
    values = {"batch_rows": 32, "window_batches": 128, "seed": 1, "longest_first": True}
    by_rows, by_tokens = PlanSettings(**values), PlanSettings(**values, max_batch_tokens=4096)
    edges = choose_bucket_edges(lengths, num_buckets=8)
    slices = SliceSettings(micro_batch=32, bucket_edges=edges, max_padding=0.1)
    parts = {
        "plan_rows": lambda: build_epoch_plan(lengths, epoch=0, settings=by_rows),
        "plan_tokens": lambda: build_epoch_plan(lengths, epoch=0, settings=by_tokens),
        "edges": lambda: choose_bucket_edges(lengths, num_buckets=8),
        "figures": lambda: padding_figures(lengths, by_rows, slices),
        "buckets": lambda: describe_buckets(lengths, by_rows, slices),
    }
    for name, part in parts.items():
        wall, cpu = time.perf_counter(), time.process_time()
        part()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{name} {wall:.2f} {cpu:.2f} {peak_mib:.0f}", flush=True)


def test_ten_million_rows_are_planned_in_seconds_and_little_memory():
    output = subprocess.run(
        [sys.executable, __file__],
        cwd=ROOT,
        env={"PYTHONPATH": "."},
        capture_output=True,
        text=True,
    )
    assert output.returncode == 0, output.stderr

    print("\npart, wall s, CPU s, peak MiB of the process\n" + output.stdout)

    lines = [line.split() for line in output.stdout.splitlines()]
    seconds = {name: float(wall) for name, wall, _, _ in lines}
    assert seconds["plan_rows"] < MAX_PLAN_S
    assert seconds["plan_tokens"] < MAX_PLAN_S
    assert max(float(peak) for _, _, _, peak in lines) < MAX_PEAK_MIB


if __name__ == "__main__":
    measure()
