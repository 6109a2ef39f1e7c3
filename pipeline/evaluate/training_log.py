"""What training wrote down beside its checkpoints: every step, every validation, what happened."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.contract.errors import FolderError, MissingFileError

HISTORY_NAME = "history.jsonl"
VALIDATION_NAME = "validation.jsonl"
EVENTS_NAME = "events.jsonl"
_REMEDY = "Run `textlane train --force`."
_LINE_REMEDY = "Take the line out: it is only shown, nothing is computed from it."

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Format:
    """The fields of a line that the report reads."""

    numbers: tuple[str, ...]
    numbers_or_null: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


_STEP = _Format(
    numbers=(
        "step",
        "lr",
        "tokens",
        "seconds",
        "padding_share",
        "loss_scale",
        "micro_batch",
        "memory_allocated_bytes",
        "memory_peak_bytes",
    ),
    numbers_or_null=("loss", "grad_norm", "memory_reserved_bytes"),
    others=("skipped",),
)
_VALIDATION = _Format(
    numbers=("step", "loss", "accuracy", "macro_f1"),
    numbers_or_null=("entity_f1",),
    others=("is_best",),
)
_EVENT = _Format(numbers=("step", "time_s"), others=("kind", "message"))


FIGURES = ("loss", "accuracy", "macro_f1", "entity_f1")
"""What training measures on the validation rows."""


def figure_name(figure: str, *, measure: str) -> str:
    """Return what people call one of :data:`FIGURES`.

    ``measure`` is what accuracy is called for the task.
    """
    names = {"accuracy": measure, "macro_f1": "macro F1", "entity_f1": "entity F1"}
    return names.get(figure, figure)


@dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """The lines of a checkpoint folder's three logs, as training's records name the fields."""

    steps: list[Row]
    """One for each step, steps ascending."""
    validations: list[Row]
    """One for each measured step, steps ascending."""
    events: list[Row]
    """As they happened."""


def read_training_log(checkpoint_dir: Path) -> TrainingLog:
    """Return what a training wrote down; only the steps must be there.

    What was done again after a restart counts once, as it was done last.

    Raises:
        MissingFileError: there are no steps.
        FolderError: a line is not what training writes.
    """
    steps = _read(checkpoint_dir / HISTORY_NAME, _STEP)
    if steps is None:
        raise MissingFileError(
            "the file is missing",
            place=str(checkpoint_dir / HISTORY_NAME),
            remedy=_REMEDY,
        )
    return TrainingLog(
        steps=_latest_by_step(steps),
        validations=_latest_by_step(_read(checkpoint_dir / VALIDATION_NAME, _VALIDATION) or []),
        events=_read(checkpoint_dir / EVENTS_NAME, _EVENT) or [],
    )


def _latest_by_step(rows: list[Row]) -> list[Row]:
    latest = {row["step"]: row for row in rows}
    return [latest[step] for step in sorted(latest)]


def _read(path: Path, wanted: _Format) -> list[Row] | None:
    try:
        content = path.read_bytes()
        # A line is whole only with its end; a kill may leave a part of one.
        text = content[: content.rfind(b"\n") + 1].decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise FolderError(f"not UTF-8: {error}", place=str(path), remedy=_LINE_REMEDY) from None
    # Not splitlines(): a message may hold other characters that it takes for an end.
    lines = text.split("\n")[:-1]
    return [
        _read_line(line, wanted, place=f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
    ]


def _read_line(line: str, wanted: _Format, *, place: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise FolderError(
            f"not JSON: {error.msg}", place=place, value=line, remedy=_LINE_REMEDY
        ) from None
    if not isinstance(row, dict):
        raise FolderError("not an object", place=place, value=line, remedy=_LINE_REMEDY)
    names = (*wanted.numbers, *wanted.numbers_or_null, *wanted.others)
    if missing := [name for name in names if name not in row]:
        text = f"the line lacks {', '.join(missing)}"
        raise FolderError(text, place=place, value=line, remedy=_LINE_REMEDY)
    odd = [name for name in wanted.numbers if not _is_number(row[name])]
    odd += [
        name
        for name in wanted.numbers_or_null
        if row[name] is not None and not _is_number(row[name])
    ]
    if odd:
        text = f"no number in {', '.join(odd)}"
        raise FolderError(text, place=place, value=line, remedy=_LINE_REMEDY)
    return row


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
