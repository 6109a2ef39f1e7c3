"""Lines of JSON beside the checkpoints: every step, every validation, and what happened."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from pipeline.contract.folder import write_text_atomically

HISTORY_NAME = "history.jsonl"
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
        """Open the history and drop what is later than ``after_step``."""
        path = folder / HISTORY_NAME
        kept = [record for record in read_history(folder) if record.step <= after_step]
        write_text_atomically(path, "".join(map(_as_line, kept)))
        self._file = path.open("a", encoding="utf-8")

    def append(self, record: StepRecord) -> None:
        """Write one line."""
        self._file.write(_as_line(record))
        self._file.flush()

    def __enter__(self) -> "HistoryWriter":
        """Return the open history."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()


def read_history(folder: Path) -> list[StepRecord]:
    """Return all records of a checkpoint folder; none if there is no history yet."""
    return _read(folder / HISTORY_NAME, max_bytes=None)


def read_latest_records(folder: Path) -> list[StepRecord]:
    """Return the last few dozen records, without reading the whole file."""
    return _read(folder / HISTORY_NAME, max_bytes=_TAIL_BYTES)


def _read(path: Path, *, max_bytes: int | None) -> list[StepRecord]:
    try:
        with path.open("rb") as file:
            start = max(file.seek(0, 2) - max_bytes, 0) if max_bytes else 0
            file.seek(start)
            content = file.read()
    except FileNotFoundError:
        return []
    # A line is whole only with its end; a kill, or the cut of the tail, leaves parts of one.
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return [StepRecord(**json.loads(line)) for line in lines[1 if start else 0 :]]


def _as_line(record: StepRecord) -> str:
    return json.dumps(asdict(record), allow_nan=False) + "\n"
