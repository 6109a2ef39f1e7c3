"""Fills a bundle's folder with its model files and measures them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.config import JobConfig, Task
from pipeline.contract.bundle import FP32_NAME, BatchShift
from pipeline.contract.errors import DataError
from pipeline.contract.profile import TrainingProfile, length_edges
from pipeline.contract.shards import Shards
from pipeline.export.acceptance import Acceptance
from pipeline.export.build import BuiltModels, build_models
from pipeline.export.figures import (
    GATE_SPLIT,
    MOST_SAMPLE_ROWS,
    SCORE_SPLIT,
    ScoreSettings,
    file_sizes,
    judge_int8,
    length_percentiles,
    measure_shifts,
    score_models,
    spread_rows,
)
from pipeline.export.gate import GateDecision
from pipeline.export.gate_sentence import describe_gate
from pipeline.export.grid_figures import describe_models
from pipeline.export.latency import latency_shapes, measure_latencies
from pipeline.export.onnx_session import LogitsFunction, open_model
from pipeline.export.parity import grid_seq_lens
from pipeline.export.reference import read_reference, write_reference
from pipeline.export.training_profile import measure_profile
from pipeline.model.trained import TrainedModel

DISK_NEEDS = "export needs for a while about eight times the size of the weights"
"""The exported and the fused graph, four INT8 candidates of about two thirds, one being written."""


@dataclass(frozen=True, kw_only=True)
class ExportInputs:
    """What a bundle is made from."""

    job: JobConfig
    trained: TrainedModel
    shards: Shards
    fingerprint: str
    acceptance: Acceptance | None
    console: Console

    @property
    def seq_lens(self) -> list[int]:
        """Lengths that every model file is tried at, ascending."""
        longest = self.trained.text_settings.max_seq_len
        return grid_seq_lens(self.shards.bucket_edges, longest)

    @property
    def seq_len_percentiles(self) -> tuple[int, ...]:
        """Tokens of the training texts: shortest, 1st … 99th percentile, longest."""
        return length_percentiles(self.shards.split("train").lengths)

    @property
    def score_settings(self) -> ScoreSettings:
        """How the models are scored and judged."""
        return ScoreSettings(
            task=Task(self.trained.task),
            num_labels=len(self.trained.labels),
            pad_token_id=self.trained.encoder.pad_token_id,
            batch_rows=self.job.evaluate.batch_rows,
            labels=tuple(self.trained.labels),
            bucket_edges=tuple(self.shards.bucket_edges.tolist()),
            seed=self.job.seed,
        )


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What the measurements of the model files gave."""

    quality: dict[str, Any]
    batch_shift: dict[str, BatchShift]
    default_model: str
    profile: TrainingProfile


def fill_models(folder: Path, inputs: ExportInputs) -> Filled:
    """Write the model files and their reference answers, and return what they measure.

    Raises:
        DataError: there are no validation or no test rows to measure on.
        ExportError: a model file failed a check.
    """
    job, trained = inputs.job, inputs.trained
    for split in (GATE_SPLIT, SCORE_SPLIT):
        demand_rows(inputs.shards, split)
    rows = spread_rows(inputs.shards.split(GATE_SPLIT), most=MOST_SAMPLE_ROWS)
    say(inputs.console, "writing the models and comparing them with torch")
    built = build_models(
        folder,
        trained,
        settings=job.export,
        seq_lens=inputs.seq_lens,
        rows=rows,
        seed=job.seed,
    )
    write_reference(folder, built.cells)
    for note in _sentences(built):
        say(inputs.console, note)
    models = {name: open_model(folder / name, device=job.export.target) for name in built.names}
    say(inputs.console, "measuring speed, batch shift and accuracy")
    settings = inputs.score_settings
    figures = _measure(folder, models, inputs)
    batch_shift = measure_shifts(models, rows, settings, seq_lens=inputs.seq_lens)
    gate = judge_int8(models, inputs.shards.split(GATE_SPLIT), settings, job.export)
    gate = replace(gate, acceptance=inputs.acceptance) if gate else None
    _announce(gate, inputs)
    quality = {
        **figures,
        "gate": {**gate.as_figures(), "sentence": describe_gate(gate)} if gate else None,
        "size_bytes": file_sizes(folder, built.names),
        "parity": built.parity,
        "fusion": built.fusion,
        "int8": built.int8,
        "notes": list(built.notes),
    }
    default_model = gate.default_model if gate else FP32_NAME
    return Filled(
        quality=quality,
        batch_shift=batch_shift,
        default_model=default_model,
        profile=_measure_profile(models[default_model], inputs),
    )


def demand_rows(shards: Shards, split: str) -> None:
    """Check that there are rows to measure on, before the work that ends with measuring.

    Raises:
        DataError: the split is empty; names the setting.
    """
    if not len(shards.split(split)):
        raise DataError(
            f"there are no {split} rows",
            place=str(shards.folder),
            remedy=f"Raise data.{split}_share and run the job again.",
        )


def _measure(
    folder: Path, models: Mapping[str, LogitsFunction], inputs: ExportInputs
) -> dict[str, Any]:
    trained, settings = inputs.trained, inputs.score_settings
    test = inputs.shards.split(SCORE_SPLIT)
    return {
        "split": SCORE_SPLIT,
        "rows": len(test),
        "batch_rows": settings.batch_rows,
        # Before all others: the threads of a session that has just run spin on for a moment.
        "latency_ms": measure_latencies(
            models,
            latency_shapes(trained.text_settings.max_seq_len),
            vocab_size=trained.architecture.vocab_size,
        ),
        # Not torch once more: parity has just shown that FP32 gives its logits.
        **score_models(models, test, settings),
        "reference": describe_models(
            models,
            read_reference(folder),
            pad_token_id=settings.pad_token_id,
            is_multi_label=settings.task is Task.MULTI_LABEL,
        ),
    }


def _measure_profile(run: LogitsFunction, inputs: ExportInputs) -> TrainingProfile:
    return measure_profile(
        run,
        inputs.shards.split(GATE_SPLIT),
        inputs.score_settings,
        edges=length_edges(inputs.seq_len_percentiles),
        unknown_token_id=inputs.trained.encoder.unknown_token_id,
    )


def _sentences(built: BuiltModels) -> Sequence[str]:
    measured = [figures["sentence"] for figures in (built.fusion, built.int8) if figures]
    return [*measured, *built.notes]


def _announce(gate: GateDecision | None, inputs: ExportInputs) -> None:
    if gate:
        style = "green" if gate.passed else "yellow"
        for line in describe_gate(gate).splitlines():
            say(inputs.console, line, style=style)
    if inputs.acceptance and not gate:
        say(inputs.console, "there is no INT8 model, so --accept has nothing to accept")
    elif inputs.acceptance and gate and gate.passed:
        say(inputs.console, "the gate passed INT8 by itself, so --accept was not needed")


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """Print a line about what export does."""
    # Labels and reasons are other people's text: no markup.
    console.print(f"export: {text}", style=style, markup=False, highlight=False)
