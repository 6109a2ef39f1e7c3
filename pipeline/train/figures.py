"""The figures of a training, under the names that TensorBoard, MLflow and Ray's metrics share."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline.train.events import Event
from pipeline.train.history import HISTORY_NAME, StepRecord, ValidationRecord, step_of

SKIPPED_MARK = b'"skipped": true'
"""Stands in the history's lines of skipped steps; looking for it is cheaper than parsing."""
_VALIDATION = "validation_"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One curve."""

    name: str
    meaning: str

    @property
    def tag(self) -> str:
        """The name in TensorBoard and MLflow, which group by the part before the slash."""
        if self.name.startswith(_VALIDATION):
            return f"validation/{self.name.removeprefix(_VALIDATION)}"
        return f"train/{self.name}"


SKIPPED_STEPS = Figure(
    name="skipped_steps_total", meaning="steps whose fp16 gradients overflowed, so far"
)
FIGURES = (
    Figure(name="loss", meaning="mean loss of the step's rows (labelled tokens)"),
    Figure(name="lr", meaning="learning rate"),
    Figure(name="grad_norm", meaning="L2 norm of the gradients before clipping"),
    Figure(name="loss_scale", meaning="fp16's loss scale, otherwise 1"),
    SKIPPED_STEPS,
    Figure(name="tokens_per_second", meaning="tokens without padding, all workers, of the step"),
    Figure(name="padding_share", meaning="padding among the tokens that were run, 0 to 1"),
    Figure(name="micro_batch", meaning="rows in one forward pass at most"),
    Figure(
        name="memory_allocated_bytes",
        meaning="CUDA tensors after the step on rank 0; on a CPU its resident memory",
    ),
    Figure(name="memory_reserved_bytes", meaning="held by torch's CUDA allocator"),
    Figure(
        name="memory_peak_bytes",
        meaning="most CUDA memory within the step; on a CPU the process's peak so far",
    ),
    Figure(name="validation_loss", meaning="mean loss on the validation rows"),
    Figure(name="validation_accuracy", meaning="share of validation rows (tokens) that are right"),
    Figure(name="validation_macro_f1", meaning="F1 of the validation rows, mean over the labels"),
    Figure(name="validation_entity_f1", meaning="entity F1 of the validation rows, BIO tags only"),
)


class FigureSink(Protocol):
    """Takes figures by their names; those that a step does not have are left out."""

    def write_figures(self, figures: Mapping[str, float], *, step: int) -> None:
        """Take what a step, or a measurement after it, gave."""

    def write_event(self, event: Event) -> None:
        """Take what people should know of."""

    def close(self) -> None:
        """Write out what is held."""


class FigureObserver:
    """Hands every record to some sinks, as figures."""

    def __init__(self, folder: Path, sinks: Sequence[FigureSink]) -> None:
        """Count skipped steps from the history of this checkpoint folder on."""
        self._folder, self._sinks = folder, tuple(sinks)
        self._num_skipped: int | None = None

    def on_step(self, record: StepRecord) -> None:
        """Hand on a step's figures."""
        if self._num_skipped is None:
            # Only now is the history cut back to the step that the training went on from.
            self._num_skipped = count_skipped(self._folder, before_step=record.step)
        self._num_skipped += record.skipped
        self._write(step_figures(record, num_skipped=self._num_skipped), step=record.step)

    def on_validation(self, record: ValidationRecord) -> None:
        """Hand on a measurement."""
        self._write(validation_figures(record), step=record.step)

    def on_event(self, event: Event) -> None:
        """Hand on an event."""
        for sink in self._sinks:
            sink.write_event(event)

    def close(self) -> None:
        """Close all sinks, also when one of them cannot be closed."""
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)

    def _write(self, figures: Mapping[str, float], *, step: int) -> None:
        for sink in self._sinks:
            sink.write_figures(figures, step=step)


def step_figures(record: StepRecord, *, num_skipped: int) -> dict[str, float]:
    """Return a step's figures by name."""
    found = {
        "loss": record.loss,
        "lr": record.lr,
        "grad_norm": record.grad_norm,
        "loss_scale": record.loss_scale,
        SKIPPED_STEPS.name: num_skipped,
        "tokens_per_second": record.tokens / max(record.seconds, 1e-9),
        "padding_share": record.padding_share,
        "micro_batch": record.micro_batch,
        "memory_allocated_bytes": record.memory_allocated_bytes,
        "memory_reserved_bytes": record.memory_reserved_bytes,
        "memory_peak_bytes": record.memory_peak_bytes,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def validation_figures(record: ValidationRecord) -> dict[str, float]:
    """Return a measurement's figures by name."""
    found = {
        "validation_loss": record.loss,
        "validation_accuracy": record.accuracy,
        "validation_macro_f1": record.macro_f1,
        "validation_entity_f1": record.entity_f1,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def count_skipped(folder: Path, *, before_step: int = 1 << 62) -> int:
    """Return how many steps of the history before one were skipped.

    Only their lines are parsed: a history of 100,000 steps takes some hundredths of a second.
    """
    try:
        file = (folder / HISTORY_NAME).open("rb")
    except FileNotFoundError:
        return 0
    with file:
        lines = [line for line in file if SKIPPED_MARK in line and line.endswith(b"\n")]
    steps = (step_of(line) for line in lines)
    return sum(step < before_step for step in steps if step is not None)
