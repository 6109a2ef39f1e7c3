"""Checks of training that need a CUDA device: no Ray, no network, one JSON table.

    python tests/perf/gpu_train.py [--device cuda|cpu] [--quick]

Loss scale of fp16, ledger against measured peak, back-off when memory runs out, exact resume, and
tokens per second. Exit status 1 if a check fails, 2 if there is no such device. On a CPU it shows
that it runs: a CPU's peak is that of the whole process, and memory is not made to run out.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# CUDA's sums are the same every time only with this, set before the first of them.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# Run as a script, Python looks in this folder alone.
sys.path.insert(1, str(Path(__file__).parents[2]))

import torch
from bench_rows import make_rows
from gpu_parts import (
    FULL,
    QUICK,
    Sizes,
    build_batch,
    build_model,
    build_runner,
    build_state,
    final_weights,
    open_training,
    run_step,
    stop_at,
    sum_of,
    train,
)

from pipeline.train.history import read_history
from pipeline.train.memory import build_memory_ledger
from pipeline.train.step import Optimisation

Row = dict[str, Any]
"""One line of the table; ``ok`` is None where nothing is demanded."""


LEDGER_TOLERANCE = 0.10
LOSS_TOLERANCE = 1e-4
WARM_UP_STEPS = 5


def main() -> int:
    """Run all checks, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device; nothing was checked", file=sys.stderr)
        return 2
    device = torch.device(options.device)
    sizes = QUICK if options.quick else FULL
    table = [row for check in CHECKS for row in check(device, sizes)]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__, "checks": table}, indent=1))
    return 1 if any(row["ok"] is False for row in table) else 0


def check_loss_scale(device: torch.device, sizes: Sizes) -> list[Row]:
    """Start at 65536, halve and leave the weights on an overflow, double after good steps."""
    state = build_state(device, sizes, precision="fp16", loss_scale_growth_steps=3)
    runner = build_runner(state, sizes.rows)
    batch = build_batch(sizes)
    first = run_step(runner, batch, step=1)
    parameter = next(state.model.parameters())
    before = parameter.detach().clone()
    hook = parameter.register_hook(lambda gradient: gradient * math.inf)
    overflow = run_step(runner, batch, step=2)
    hook.remove()
    is_kept = torch.equal(before, parameter)
    after = [run_step(runner, batch, step=step) for step in range(3, 7)]
    scales = [result.loss_scale for result in (first, overflow, *after)]
    skipped = [result.is_skipped for result in (first, overflow, *after)]
    # Three good steps after the overflow double the scale for the fourth.
    ok = scales == [65536.0, 65536.0, 32768.0, 32768.0, 32768.0, 65536.0]
    ok = ok and skipped == [False, True, False, False, False, False] and is_kept
    return [{"name": "fp16 loss scale", "ok": ok, "scales": scales, "skipped": skipped}]


def check_ledger(device: torch.device, sizes: Sizes) -> list[Row]:
    """Compare the ledger with the most that a step allocates, for each precision."""
    rows: list[Row] = []
    for precision in ("fp32", "bf16", "fp16"):
        model = build_model(sizes)
        ledger = build_memory_ledger(
            model, precision=precision, rows=sizes.rows, seq_len=sizes.seq_len
        )
        row: Row = {"name": f"ledger {precision}", "ok": None, "ledger": ledger.total_bytes}
        if device.type == "cuda":
            row |= measure_peak(device, sizes, precision)
            error = ledger.total_bytes / row["peak"] - 1.0
            row |= {"error": round(error, 3), "ok": abs(error) <= LEDGER_TOLERANCE}
        rows.append(row)
    return rows


def measure_peak(device: torch.device, sizes: Sizes, precision: str) -> Row:
    """Return the most bytes that three steps of the worst pass allocate."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    runner = build_runner(build_state(device, sizes, precision=precision), sizes.rows)
    for step in range(1, 4):
        run_step(runner, build_batch(sizes), step=step)
    return {"peak": torch.cuda.max_memory_allocated(device) - before}


def check_back_off(device: torch.device, sizes: Sizes) -> list[Row]:
    """Let memory run out in the first step: fewer rows in a pass, the same loss and norm."""
    batch = build_batch(sizes)
    free = build_runner(build_state(device, sizes), sizes.rows)
    expected = run_step(free, batch, step=1)
    del free
    told: list[str] = []
    state = build_state(device, sizes)
    runner = build_runner(state, sizes.rows, told=told)
    release = limit_memory(device, sizes, state)
    try:
        found = run_step(runner, batch, step=1)
    finally:
        release()
    near = math.isclose(found.loss, expected.loss, abs_tol=LOSS_TOLERANCE)
    near = near and math.isclose(found.grad_norm, expected.grad_norm, rel_tol=1e-3)
    return [
        {
            "name": "back-off",
            "ok": near and runner.micro_batch < sizes.rows and len(told) > 0,
            "micro_batch": [sizes.rows, runner.micro_batch],
            "loss": [expected.loss, found.loss],
            "grad_norm": [expected.grad_norm, found.grad_norm],
            "told": told,
        }
    ]


def limit_memory(device: torch.device, sizes: Sizes, state: Optimisation) -> Callable[[], None]:
    """Allow about what a pass of a quarter of the rows takes; return what lifts the limit."""
    if device.type == "cpu":
        # Memory cannot be limited for a process that shares it with the checks: pretend.
        def refuse(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
            if len(inputs[0]) > sizes.rows // 4:
                raise torch.OutOfMemoryError("Tried to allocate 1.00 GiB")

        return state.model.register_forward_pre_hook(refuse).remove
    ledger = build_memory_ledger(
        build_model(sizes), precision="fp32", rows=sizes.rows, seq_len=sizes.seq_len
    )
    assert ledger.activations_bytes is not None
    torch.cuda.empty_cache()
    # Half of the rows would need twice as much for their activations.
    allowed = torch.cuda.memory_reserved(device) + int(0.35 * ledger.activations_bytes)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(allowed / total, device)
    return lambda: torch.cuda.set_per_process_memory_fraction(1.0, device)


def check_resume(device: torch.device, sizes: Sizes) -> list[Row]:
    """Stop in the middle and go on: losses and final weights are those of an unbroken run."""
    rows = make_rows(sizes.rows * 12, max_seq_len=sizes.seq_len, vocab_size=sizes.vocab_size)
    torch.use_deterministic_algorithms(True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            unbroken, broken = (
                open_training(rows, Path(folder) / name, sizes, device=device, every=5)
                for name in ("unbroken", "broken")
            )
            train(unbroken, device)
            stop_at(broken, device, step=5)
            first = train(broken, device)
            losses = [
                [record.loss for record in read_history(run.checkpoint_dir)]
                for run in (unbroken, broken)
            ]
            weights = [final_weights(run) for run in (unbroken, broken)]
    finally:
        torch.use_deterministic_algorithms(False)
    is_equal = all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    ok = first == 5 and losses[0] == losses[1] and is_equal
    return [{"name": "exact resume", "ok": ok, "steps": len(losses[0]), "went_on_from": first}]


def check_speed(device: torch.device, sizes: Sizes) -> list[Row]:
    """Measure real tokens per second and padding for each precision; nothing is demanded."""
    rows = make_rows(
        sizes.rows * sizes.steps, max_seq_len=sizes.seq_len, vocab_size=sizes.vocab_size
    )
    table: list[Row] = []
    for precision in ("fp32", "bf16", "fp16") if device.type == "cuda" else ("fp32", "bf16"):
        with tempfile.TemporaryDirectory() as folder:
            run = open_training(rows, Path(folder), sizes, device=device, precision=precision)
            train(run, device)
            records = read_history(run.checkpoint_dir)[WARM_UP_STEPS:]
        table.append(
            {
                "name": f"speed {precision}",
                "ok": None,
                "tokens_per_s": round(sum_of(records, "tokens") / sum_of(records, "seconds")),
                "padding": round(sum_of(records, "padding_share") / len(records), 4),
                "peak": max(record.memory_peak_bytes for record in records),
            }
        )
    return table


CHECKS = (check_loss_scale, check_ledger, check_back_off, check_resume, check_speed)


if __name__ == "__main__":
    sys.exit(main())
