"""Lines as training writes them beside its checkpoints."""

import json


def step_row(step, **changes):
    return {
        "step": step,
        "epoch": 0,
        "loss": 0.9 / step,
        "lr": 1e-4,
        "grad_norm": 0.7,
        "tokens": 300,
        "padding_share": 0.1,
        "seconds": 0.5,
        "loss_scale": 1.0,
        "skipped": False,
        "micro_batch": 16,
        "longest": 12,
        "memory_allocated_bytes": 3_000_000,
        "memory_reserved_bytes": None,
        "memory_peak_bytes": 4_000_000,
        **changes,
    }


def validation_row(step, **changes):
    row = {"step": step, "loss": 0.6, "accuracy": 0.75, "macro_f1": 0.5, "entity_f1": None}
    return {**row, "epoch": 0, "is_best": True, "seconds": 0.1, **changes}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
