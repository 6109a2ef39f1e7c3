"""Measures a bundle's models: accuracy, sizes, latencies, the INT8 gate and the batch shift."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.bundle import FP32_NAME, INT8_NAME
from pipeline.contract.shards import Shards, ShardSplit
from pipeline.export.batch_shift import measure_batch_shift
from pipeline.export.gate import GateDecision
from pipeline.export.latency import measure_latency
from pipeline.export.onnx_session import LogitsFunction
from pipeline.multi_label_quality import score_logits
from pipeline.quality import (
    FloatArray,
    accuracy,
    accuracy_name,
    labels_of,
    macro_f1,
    predict_split,
)

_SHIFT_PROBES = 8
GATE_SPLIT = "validation"
SCORE_SPLIT = "test"


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """How rows are run when models are scored."""

    task: Task
    num_labels: int
    pad_token_id: int
    batch_rows: int


def score_models(
    models: Mapping[str, LogitsFunction], split: ShardSplit, settings: ScoreSettings
) -> dict[str, dict[str, float]]:
    """Return accuracy and F1 of every model on a split: figure → model → value.

    ``accuracy`` of multi-label texts is exact match (:mod:`pipeline.multi_label_quality`).
    """
    labels = labels_of(split)
    scores: dict[str, dict[str, float]] = {}
    for name, run in models.items():
        logits = predict_split(
            split,
            run,
            batch_rows=settings.batch_rows,
            pad_token_id=settings.pad_token_id,
            task=settings.task,
        )
        for figure, value in _score(logits, labels, settings).items():
            scores.setdefault(figure, {})[name] = value
    return scores


def _score(
    logits: list[FloatArray], labels: list[NDArray[np.int32]], settings: ScoreSettings
) -> dict[str, float]:
    if settings.task is Task.MULTI_LABEL:
        return score_logits(logits, labels, settings.num_labels)
    return {
        "accuracy": accuracy(logits, labels),
        "macro_f1": macro_f1(logits, labels, settings.num_labels),
    }


def judge_int8(
    models: Mapping[str, LogitsFunction],
    split: ShardSplit,
    settings: ScoreSettings,
    *,
    max_drop: float,
) -> GateDecision | None:
    """Return the gate's decision on a split; None when there is no INT8 model to judge."""
    if INT8_NAME not in models:
        return None
    judged = {name: models[name] for name in (FP32_NAME, INT8_NAME)}
    scores = score_models(judged, split, settings)["accuracy"]
    return GateDecision(
        split=GATE_SPLIT,
        measure=accuracy_name(settings.task),
        rows=len(split),
        fp32_accuracy=scores[FP32_NAME],
        int8_accuracy=scores[INT8_NAME],
        max_drop=max_drop,
    )


def measure_speed_and_shift(
    models: Mapping[str, LogitsFunction],
    shards: Shards,
    *,
    vocab_size: int,
    pad_token_id: int,
    max_seq_len: int,
) -> dict[str, Any]:
    """Return ``latency_ms`` at the median training length and ``batch_shift``, by file."""
    seq_len = max(1, round(float(np.median(shards.split("train").lengths))))
    validation = shards.split(GATE_SPLIT)
    rows = [validation.input_ids(index) for index in range(len(validation))]
    latency_ms, batch_shift = {}, {}
    for name, run in models.items():
        latency_ms[name] = measure_latency(run, seq_len=seq_len, vocab_size=vocab_size)
        batch_shift[name] = measure_batch_shift(
            run, rows, probes=_SHIFT_PROBES, pad_token_id=pad_token_id, max_seq_len=max_seq_len
        )
    return {"latency_ms": latency_ms, "batch_shift": batch_shift}


def file_sizes(folder: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return the bytes of the named files."""
    return {name: (folder / name).stat().st_size for name in names}
