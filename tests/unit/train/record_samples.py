"""Records of a training that never ran."""

from pipeline.train.history import HistoryWriter, StepRecord, ValidationRecord


def record_of(step, **changes):
    values = {
        "step": step,
        "epoch": 0,
        "loss": 0.5,
        "lr": 1e-4,
        "grad_norm": 1.0,
        "tokens": 300,
        "padding_share": 0.05,
        "seconds": 0.1,
        "loss_scale": 1.0,
        "skipped": False,
        "micro_batch": 32,
        "longest": 12,
        "memory_allocated_bytes": 12_000_000,
        "memory_reserved_bytes": None,
        "memory_peak_bytes": 34_000_000,
    }
    return StepRecord(**{**values, **changes})


def validation_of(step, **changes):
    values = {
        "step": step,
        "epoch": 0,
        "loss": 0.4,
        "accuracy": 0.912,
        "macro_f1": 0.9,
        "entity_f1": None,
        "is_best": True,
        "seconds": 1.0,
    }
    return ValidationRecord(**{**values, **changes})


def write_history(folder, records, *, after_step=0):
    with HistoryWriter(folder, after_step=after_step) as history:
        for record in records:
            history.append(record)
