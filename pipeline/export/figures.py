"""Measures a bundle's models: accuracy, sizes, the INT8 gate, batch shift and lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.config import ExportSettings, Task
from pipeline.contract.batching import IntArray
from pipeline.contract.bundle import FP32_NAME, INT8_NAME, BatchShift
from pipeline.contract.errors import ExportError, InferenceError
from pipeline.contract.shards import ShardSplit
from pipeline.export.batch_shift import measure_batch_shift
from pipeline.export.external_data import model_size_bytes
from pipeline.export.gate import AnswerChanges, GateDecision
from pipeline.export.onnx_session import LogitsFunction
from pipeline.export.paired_answers import (
    PairedAnswers,
    drops_by_bucket,
    drops_by_class,
    pair_answers,
)
from pipeline.export.paired_bootstrap import measure_drops
from pipeline.multi_label_quality import score_logits
from pipeline.quality import (
    FloatArray,
    accuracy,
    accuracy_name,
    labels_of,
    macro_f1,
    predict_split,
)

MOST_SAMPLE_ROWS = 64
"""Validation texts on which INT8 candidates and the batch shift are measured."""
_SHIFT_PROBES = 8
GATE_SPLIT = "validation"
SCORE_SPLIT = "test"


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """How rows are run when models are scored, and how the gate tells their parts apart."""

    task: Task
    num_labels: int
    pad_token_id: int
    batch_rows: int
    labels: tuple[str, ...] = ()
    """Names of the labels; without them their numbers are shown."""
    bucket_edges: tuple[int, ...] = ()
    """Greatest length of every bucket; without them all rows are one bucket."""
    seed: int = 0
    """Draws the gate's resamples."""


def score_models(
    models: Mapping[str, LogitsFunction], split: ShardSplit, settings: ScoreSettings
) -> dict[str, dict[str, float]]:
    """Return accuracy and F1 of every model on a split: figure → model → value.

    ``accuracy`` of multi-label texts is exact match (:mod:`pipeline.multi_label_quality`).

    Raises:
        ExportError: a model's logits are not finite.
    """
    labels = labels_of(split)
    scores: dict[str, dict[str, float]] = {}
    for name, run in models.items():
        logits = _predict(name, run, split, settings)
        for figure, value in _score(logits, labels, settings).items():
            scores.setdefault(figure, {})[name] = value
    return scores


def _predict(
    name: str, run: LogitsFunction, split: ShardSplit, settings: ScoreSettings
) -> list[FloatArray]:
    try:
        return predict_split(
            split,
            run,
            batch_rows=settings.batch_rows,
            pad_token_id=settings.pad_token_id,
            task=settings.task,
        )
    except InferenceError as error:
        raise ExportError(
            f"{error.place}: {error.problem}" if error.place else error.problem,
            place=name,
            remedy=error.remedy,
        ) from error


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
    export: ExportSettings,
) -> GateDecision | None:
    """Return the gate's decision on a split; None when there is no INT8 model to judge.

    Raises:
        ExportError: a model's logits are not finite.
    """
    if INT8_NAME not in models:
        return None
    fp32, int8 = (_predict(name, models[name], split, settings) for name in (FP32_NAME, INT8_NAME))
    answers = pair_answers(
        (fp32, int8),
        labels_of(split),
        task=settings.task,
        num_labels=settings.num_labels,
        row_ids=split.row_ids,
    )
    return GateDecision(
        split=GATE_SPLIT,
        measure=accuracy_name(settings.task),
        counted="words" if settings.task is Task.TOKEN else "rows",
        texts=answers.num_texts,
        resamples=export.gate_resamples,
        drops=measure_drops(answers, resamples=export.gate_resamples, seed=settings.seed),
        max_accuracy_drop=export.max_accuracy_drop,
        max_macro_f1_drop=export.max_macro_f1_drop,
        changes=_find_changes(answers, split.lengths, settings),
    )


def _find_changes(
    answers: PairedAnswers, lengths: IntArray, settings: ScoreSettings
) -> AnswerChanges:
    was_right, is_right = answers.is_right
    names = settings.labels or tuple(str(label) for label in range(settings.num_labels))
    edges = settings.bucket_edges or (int(lengths.max()),)
    return AnswerChanges(
        decisions=len(answers.true),
        flips=int(answers.is_flip.sum()),
        losses=int((was_right & ~is_right).sum()),
        gains=int((~was_right & is_right).sum()),
        by_class=tuple(drops_by_class(answers, names)),
        by_bucket=tuple(drops_by_bucket(answers, lengths=lengths, bucket_edges=edges)),
    )


def measure_shifts(
    models: Mapping[str, LogitsFunction],
    rows: Sequence[NDArray[np.int32]],
    settings: ScoreSettings,
    *,
    seq_lens: Sequence[int],
) -> dict[str, BatchShift]:
    """Return how far each model's answers move with their batch, by file.

    Args:
        models: by file.
        rows: token ids of texts.
        settings: padding and task.
        seq_lens: lengths to pad to: the bucket edges and the longest.

    Raises:
        ExportError: an answer is not finite.
    """
    shifts = {}
    for name, run in models.items():
        try:
            shifts[name] = measure_batch_shift(
                run,
                rows,
                probes=_SHIFT_PROBES,
                pad_token_id=settings.pad_token_id,
                seq_lens=seq_lens,
                is_multi_label=settings.task is Task.MULTI_LABEL,
            )
        except ExportError as error:
            raise ExportError(error.problem, place=name, remedy=error.remedy) from error
    return shifts


def spread_rows(split: ShardSplit, *, most: int) -> list[NDArray[np.int32]]:
    """Return the token ids of at most so many rows, shortest to longest, evenly spread."""
    order = np.argsort(split.lengths, kind="stable")
    places = np.linspace(0, len(order) - 1, num=min(most, len(order)), dtype=np.int64)
    return [split.input_ids(int(order[place])) for place in places]


def length_percentiles(lengths: IntArray) -> tuple[int, ...]:
    """Return 101 lengths that occur: the shortest, the 1st to 99th percentile, the longest."""
    found = np.percentile(lengths, np.arange(101), method="nearest")
    return tuple(int(length) for length in found)


def file_sizes(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """Return the bytes of the named model files, weights in a file of their own included."""
    return {name: model_size_bytes(folder / name) for name in names}
