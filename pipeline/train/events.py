"""What happened in a training beside its steps, for people: kept in events.jsonl."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pipeline.train.record_lines import read_lines, whole_lines

EVENTS_NAME = "events.jsonl"

EventKind = Literal[
    "resumed",
    "out_of_memory",
    "memory_leak",
    "fragmentation",
    "skipped",
    "preempted",
    "early_stop",
    "not_finite",
    "mlflow",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that people should know of."""

    step: int
    """The step that it happened in, or after which; 0 before the first."""
    kind: EventKind
    message: str
    """One sentence, without a full stop, with figures and what was done about it."""
    time_s: float
    """Seconds since 1970."""


class EventWriter:
    """Appends events; several processes may write, each line goes out in one call."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Write into a checkpoint folder."""
        self._path, self._clock = folder / EVENTS_NAME, clock

    def write(self, kind: EventKind, message: str, *, step: int) -> Event:
        """Add one event and return it."""
        event = Event(step=step, kind=kind, message=message, time_s=self._clock())
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(event), allow_nan=False, ensure_ascii=False) + "\n")
        return event


def drop_half_line(folder: Path) -> None:
    """Cut a line without an end, which a kill or a full disk left, off the events' file.

    The next event would become part of it. Call it before anybody writes.
    """
    path = folder / EVENTS_NAME
    content = path.read_bytes() if path.exists() else b""
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(path, end)


def read_events(folder: Path) -> list[Event]:
    """Return all events of a checkpoint folder, oldest first; none if there are none.

    Lines that cannot be read are passed over.
    """
    try:
        content = (folder / EVENTS_NAME).read_bytes()
    except FileNotFoundError:
        return []
    return read_lines(whole_lines(content), Event).records
