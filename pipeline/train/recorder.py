"""Writes and tells what happens in a training, on rank 0 alone."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.train.events import EventKind, EventWriter, drop_half_line
from pipeline.train.history import HistoryWriter, StepRecord, ValidationRecord
from pipeline.train.observers import Observer


class Recorder:
    """On rank 0 the history's files, the events' file and all observers; elsewhere nothing.

    Each file gets its line before the observers hear of it.
    """

    def __init__(
        self, folder: Path, *, rank: int, after_step: int, observers: Sequence[Observer]
    ) -> None:
        """Open the files on rank 0 and drop what is later than ``after_step``."""
        is_first = rank == 0
        if is_first:
            drop_half_line(folder)
        self._history = HistoryWriter(folder, after_step=after_step) if is_first else None
        self._events = EventWriter(folder) if is_first else None
        self._observers = tuple(observers) if is_first else ()

    def step(self, record: StepRecord) -> None:
        """Keep and tell one step."""
        if self._history:
            self._history.append(record)
        for observer in self._observers:
            observer.on_step(record)

    def validation(self, record: ValidationRecord) -> None:
        """Keep and tell one measurement of the validation rows."""
        if self._history:
            self._history.append(record)
        for observer in self._observers:
            observer.on_validation(record)

    def event(self, kind: EventKind, message: str, *, step: int) -> None:
        """Keep and tell what people should know of."""
        if self._events is None:
            return
        event = self._events.write(kind, message, step=step)
        for observer in self._observers:
            observer.on_event(event)

    def close(self) -> None:
        """Close the files; the observers are their owner's to close."""
        if self._history:
            self._history.close()
