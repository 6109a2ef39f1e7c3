"""What training wrote down beside its checkpoints: every step, every validation, what happened."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.contract.errors import MissingFileError

HISTORY_NAME = "history.jsonl"
VALIDATION_NAME = "validation.jsonl"
EVENTS_NAME = "events.jsonl"
_REMEDY = "Run `textlane train --force`."
_YEAR_10000_S = 253_402_300_800
"""Python's dates end before it."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Format:
    """The fields of a line that the report reads."""

    numbers: tuple[str, ...]
    numbers_or_null: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    """Those of the numbers that are seconds since 1970."""


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
_EVENT = _Format(numbers=("step", "time_s"), others=("kind", "message"), times=("time_s",))


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
    passed_over: dict[str, int]
    """File name → lines that are not what training writes; files without any are left out."""


def read_training_log(checkpoint_dir: Path) -> TrainingLog:
    """Return what a training wrote down; only the file of the steps must be there.

    What was done again after a restart counts once, as it was done last. A line that a kill, a
    power cut or a hand has spoilt is passed over: the lines are only shown.

    Raises:
        MissingFileError: there is no file of the steps.
    """
    if not (checkpoint_dir / HISTORY_NAME).exists():
        raise MissingFileError(
            "the file is missing",
            place=str(checkpoint_dir / HISTORY_NAME),
            remedy=_REMEDY,
        )
    formats = {HISTORY_NAME: _STEP, VALIDATION_NAME: _VALIDATION, EVENTS_NAME: _EVENT}
    read = {name: _read(checkpoint_dir / name, wanted) for name, wanted in formats.items()}
    good = {name: [row for row in rows if row is not None] for name, rows in read.items()}
    num_bad = {name: rows.count(None) for name, rows in read.items()}
    return TrainingLog(
        steps=_latest_by_step(good[HISTORY_NAME]),
        validations=_latest_by_step(good[VALIDATION_NAME]),
        events=good[EVENTS_NAME],
        passed_over={name: count for name, count in num_bad.items() if count},
    )


def _latest_by_step(rows: list[Row]) -> list[Row]:
    latest = {row["step"]: row for row in rows}
    return [latest[step] for step in sorted(latest)]


def _read(path: Path, wanted: _Format) -> list[Row | None]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    # A line is whole only with its end; a kill may leave a part of one. Bytes, not text: a
    # message may hold other characters that str.splitlines() takes for an end.
    return [_read_line(line, wanted) for line in content.split(b"\n")[:-1]]


def _read_line(line: bytes, wanted: _Format) -> Row | None:
    """Return the line's fields, None if it is not what training writes."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or any(name not in row for name in wanted.others):
        return None
    is_good = (
        all(_is_number(row.get(name)) for name in wanted.numbers)
        and all(0 <= row[name] < _YEAR_10000_S for name in wanted.times)
        and all(
            name in row and (row[name] is None or _is_number(row[name]))
            for name in wanted.numbers_or_null
        )
    )
    return row if is_good else None


def _is_number(value: object) -> bool:
    # Not math.isfinite(), which refuses whole numbers that are too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max
