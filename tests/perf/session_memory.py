"""Memory of one serving session over random shapes, under several policies of ONNX Runtime.

`python tests/perf/session_memory.py BUNDLE [--runs 2000] [--budget 512]` prints a row each; every
policy has a process of its own and gets the same shapes in the same order.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

from pipeline.contract.bundle import load_bundle

MAX_ROWS, THREADS = 32, 2
SHRINK = ("memory.enable_memory_arena_shrinkage", "cpu:0")
POLICIES = {
    "arena, doubling (ONNX Runtime's default)": {},
    "arena, doubling, no memory patterns": {"pattern": False},
    "arena, as requested": {"extend": 1},
    "arena, as requested, no memory patterns": {"extend": 1, "pattern": False},
    "arena, doubling, shrunk after each run": {"shrinks": True},
    "arena, as requested, shrunk after each run": {"extend": 1, "shrinks": True},
    "no arena": {"arena": False},
    "no arena, no memory patterns": {"arena": False, "pattern": False},
}


def open_session(model_path, policy):
    """Return the session as `serve_app/session.py` opens it, but for the policy."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = policy.get("arena", True)
    options.enable_mem_pattern = policy.get("pattern", True)
    if "extend" in policy:
        memory = onnxruntime.OrtMemoryInfo(
            "Cpu",
            onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
            0,
            onnxruntime.OrtMemType.DEFAULT,
        )
        # -1 leaves a number to ONNX Runtime; the second is how the arena grows.
        config = onnxruntime.OrtArenaCfg(0, policy["extend"], -1, -1)
        onnxruntime.create_and_register_allocator(memory, config)
        options.add_session_config_entry("session.use_env_allocators", "1")
    return onnxruntime.InferenceSession(
        str(model_path), options, providers=["CPUExecutionProvider"]
    )


def random_shapes(num_runs, *, budget, max_seq_len):
    """Yield (batch, seq) as lanes form them: within the budget, long texts alone."""
    random = np.random.default_rng(0)
    for _ in range(num_runs):
        seq_len = int(random.integers(3, max_seq_len + 1))
        most = max(1, min(MAX_ROWS, budget // seq_len))
        yield int(random.integers(1, most + 1)), seq_len


def resident_mib(field="VmRSS"):
    """Return the memory that this process holds, or `VmHWM` held at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) / 1024.0


def measure(bundle_dir, policy, *, num_runs, budget):
    """Print the figures of one policy as JSON."""
    bundle = load_bundle(bundle_dir)
    session = open_session(bundle.model_path(None), policy)
    run_options = onnxruntime.RunOptions()
    if policy.get("shrinks"):
        run_options.add_run_config_entry(*SHRINK)
    loaded, resident = resident_mib(), []
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    max_seq_len = bundle.manifest.limits.max_seq_len
    for shape in random_shapes(num_runs, budget=budget, max_seq_len=max_seq_len):
        feeds = {
            "input_ids": np.full(shape, 5, dtype=np.int64),
            "attention_mask": np.ones(shape, dtype=np.int64),
        }
        session.run(["logits"], feeds, run_options)
        resident.append(resident_mib())
    figures = {
        "loaded": loaded,
        "at 10 %": max(resident[: num_runs // 10]),
        "at half": max(resident[: num_runs // 2]),
        "highest": max(resident),
        "at the end": resident[-1],
        "peak": resident_mib("VmHWM"),
        "ms a run": (time.perf_counter() - began_s) * 1000.0 / num_runs,
        "CPU ms a run": (time.process_time() - began_cpu_s) * 1000.0 / num_runs,
    }
    print(json.dumps({name: round(value, 1) for name, value in figures.items()}))


def main():
    """Measure one policy, or have a process measure each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--budget", type=int, default=512, help="padded tokens of a run")
    parser.add_argument("--policy", choices=POLICIES)
    given = parser.parse_args()
    if given.policy:
        measure(given.bundle, POLICIES[given.policy], num_runs=given.runs, budget=given.budget)
        return
    for name in POLICIES:
        command = [sys.executable, __file__, *sys.argv[1:], "--policy", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"{name}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
