"""Lines of JSON beside the checkpoints: every step and every validation."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from pipeline.train.record_lines import RecordT, read_lines, whole_lines

HISTORY_NAME = "history.jsonl"
VALIDATION_NAME = "validation.jsonl"
_TAIL_BYTES = 1 << 14


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step of the training."""

    step: int
    """Counts from 1."""
    epoch: int
    """Counts from 0."""
    loss: float
    lr: float
    grad_norm: float | None
    """L2 norm before clipping; null when it was not finite."""
    tokens: int
    """Tokens of the global batch, without padding."""
    padding_share: float
    """Share of padding among the tokens that were run, 0 to 1."""
    seconds: float
    """Wall-clock of the step on rank 0, reading included."""
    loss_scale: float
    skipped: bool
    """True when fp16 gradients overflowed and the weights stayed."""
    micro_batch: int
    """Rows in one forward pass at most; falls when memory runs out."""
    longest: int
    """Tokens of the step's longest row."""
    memory_allocated_bytes: int
    """After the step on rank 0: CUDA tensors, or the process's resident memory on a CPU."""
    memory_reserved_bytes: int | None
    """What torch holds of the CUDA device after the step; null on a CPU."""
    memory_peak_bytes: int
    """Most CUDA memory allocated within the step; on a CPU the process's peak so far."""


@dataclass(frozen=True, kw_only=True)
class ValidationRecord:
    """One measurement on the validation rows."""

    step: int
    """Steps done before it."""
    epoch: int
    """Of that step, counts from 0."""
    loss: float
    """Mean over the rows (labelled tokens), as in training but without dropout."""
    accuracy: float
    """Share of rows (labelled tokens) that are right; exact match for several labels a row."""
    macro_f1: float
    entity_f1: float | None
    """Null unless the labels are BIO tags."""
    is_best: bool
    """Whether no measurement before it was as good."""
    seconds: float


class HistoryWriter:
    """Appends records; every line is handed to the system at once."""

    def __init__(self, folder: Path, *, after_step: int) -> None:
        """Open both files and drop the lines at their ends that are later or unreadable."""
        self._steps = _open_cut_back(folder / HISTORY_NAME, after_step)
        self._validations = _open_cut_back(folder / VALIDATION_NAME, after_step)

    def append(self, record: StepRecord | ValidationRecord) -> None:
        """Write one line into the file of its kind."""
        file = self._steps if isinstance(record, StepRecord) else self._validations
        file.write(_as_line(record))
        file.flush()

    def close(self) -> None:
        """Close both files."""
        self._steps.close()
        self._validations.close()

    def __enter__(self) -> "HistoryWriter":
        """Return the open history."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close both files."""
        self.close()


def sync_history(folder: Path) -> None:
    """Flush both files to the disk, so that a power cut leaves the lines that are there now."""
    for name in (HISTORY_NAME, VALIDATION_NAME):
        try:
            with (folder / name).open("rb") as file:
                os.fsync(file.fileno())
        except FileNotFoundError:
            continue


def read_history(folder: Path) -> list[StepRecord]:
    """Return all records of a checkpoint folder; none if there is no history yet.

    Here and below, lines that cannot be read are passed over.
    """
    return _read(folder / HISTORY_NAME, StepRecord)


def read_latest_records(folder: Path) -> list[StepRecord]:
    """Return the last few dozen records, without reading the whole file."""
    return _read(folder / HISTORY_NAME, StepRecord, max_bytes=_TAIL_BYTES)


def read_validations(folder: Path) -> list[ValidationRecord]:
    """Return all measurements of a checkpoint folder; none if there are none."""
    return _read(folder / VALIDATION_NAME, ValidationRecord)


def _read(path: Path, kind: type[RecordT], *, max_bytes: int | None = None) -> list[RecordT]:
    try:
        with path.open("rb") as file:
            start = max(file.seek(0, 2) - max_bytes, 0) if max_bytes else 0
            file.seek(start)
            content = file.read()
    except FileNotFoundError:
        return []
    # The cut of the tail leaves a part of a line.
    return read_lines(whole_lines(content)[1 if start else 0 :], kind).records


def _open_cut_back(path: Path, after_step: int) -> TextIO:
    # Only the lines that go are parsed, from the end: steps rise, and a killed run has no more
    # lines after its checkpoint than it did steps since.
    content = path.read_bytes() if path.exists() else b""
    end = content.rfind(b"\n") + 1
    while end:
        start = content.rfind(b"\n", 0, end - 1) + 1
        step = step_of(content[start:end])
        if step is not None and step <= after_step:
            break
        end = start
    if end < len(content):
        os.truncate(path, end)
    return path.open("a", encoding="utf-8")


def step_of(line: bytes) -> int | None:
    """Return the step of a line of either file, None if it cannot be read."""
    # A power cut may leave zeros or parts of lines after the last ones that were synced, which
    # are those before a checkpoint: what cannot be read is later than it.
    try:
        step = json.loads(line)["step"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def _as_line(record: StepRecord | ValidationRecord) -> str:
    return json.dumps(asdict(record), allow_nan=False) + "\n"
