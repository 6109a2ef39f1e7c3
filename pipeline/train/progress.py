"""Shows a running training to a person: follows the checkpoint folder, writes to stderr."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from pipeline.train.events import EVENTS_NAME, Event, read_events
from pipeline.train.figures import SKIPPED_MARK
from pipeline.train.history import (
    HISTORY_NAME,
    VALIDATION_NAME,
    StepRecord,
    ValidationRecord,
    read_latest_records,
    read_validations,
)
from pipeline.train.record_lines import read_lines, whole_lines

_POLL_S = 0.5
_LINES = 10
"""Lines in all where there is no terminal to draw a bar on, beside those of events."""


def show_progress(
    folder: Path, *, total_steps: int, is_over: Flag, console: Console | None = None
) -> None:
    """Show steps, figures, time left and what happens, until ``is_over``.

    Events that the folder holds already belong to a training before this one; they are not
    shown again.
    """
    console = console or Console(stderr=True, soft_wrap=True)
    watch = _Watch(folder)
    if console.is_terminal:
        _draw_bar(watch, total_steps=total_steps, is_over=is_over, console=console)
    else:
        _print_lines(watch, total_steps=total_steps, is_over=is_over, console=console)


def describe_step(
    records: Sequence[StepRecord],
    *,
    num_skipped: int = 0,
    validation: ValidationRecord | None = None,
) -> str:
    """Return the last record's figures, the speed averaged over all that are given.

    Args:
        records: the latest steps, oldest first, at least one.
        num_skipped: steps without an update since the start.
        validation: the last measurement of the validation rows.
    """
    last = records[-1]
    tokens, seconds = sum(r.tokens for r in records), sum(r.seconds for r in records)
    parts = [
        f"loss {last.loss:.4f}",
        f"lr {last.lr:.2e}",
        f"{tokens / max(seconds, 1e-9):,.0f} tokens/s",
        f"padding {last.padding_share:.1%}",
        f"memory {_describe_memory(last)}",
    ]
    if last.loss_scale != 1.0:
        parts.append(f"loss scale {last.loss_scale:g}")
    if num_skipped:
        parts.append(f"{num_skipped} skipped")
    if validation is not None:
        parts.append(
            f"validation at step {validation.step}: loss {validation.loss:.4f}, "
            f"accuracy {validation.accuracy:.1%}"
        )
    return ", ".join(parts)


def describe_event(event: Event) -> str:
    """Return one line for an event."""
    return f"step {event.step}, {event.kind.replace('_', ' ')}: {event.message}"


def describe_time_left(records: Sequence[StepRecord], *, total_steps: int) -> str:
    """Return the rest of the steps at the mean speed of these, as ``2:03:04 left``."""
    mean_s = sum(record.seconds for record in records) / len(records)
    minutes, seconds = divmod(round(mean_s * (total_steps - records[-1].step)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} left"


def _describe_memory(record: StepRecord) -> str:
    if record.memory_reserved_bytes is None:
        return f"{record.memory_allocated_bytes / 1e6:,.0f} MB"
    return (
        f"{record.memory_peak_bytes / 1e6:,.0f} MB "
        f"({record.memory_reserved_bytes / 1e6:,.0f} reserved)"
    )


class _Watch:
    """What the folder shows now, and what of it has been told already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps = _LineCounter(folder / HISTORY_NAME, StepRecord)
        self._counters = (
            self._steps,
            _LineCounter(folder / VALIDATION_NAME, ValidationRecord),
            _LineCounter(folder / EVENTS_NAME, Event),
        )
        self._told = set(read_events(folder))
        self._told_bad: dict[str, int] = {}
        self.records: list[StepRecord] = []
        self.is_stopped_early = False

    def look(self) -> list[str]:
        """Read the latest steps; return a line for each thing that is new, oldest first."""
        new = [event for event in read_events(self._folder) if event not in self._told]
        self._told.update(new)
        self.is_stopped_early |= any(event.kind == "early_stop" for event in new)
        self.records = read_latest_records(self._folder)
        return [*map(describe_event, new), *self._describe_bad_lines()]

    def describe(self) -> str:
        validations = read_validations(self._folder)
        return describe_step(
            self.records,
            num_skipped=self._steps.num_skipped,
            validation=validations[-1] if validations else None,
        )

    def _describe_bad_lines(self) -> Iterator[str]:
        for counter in self._counters:
            counter.read_on()
            name, num_bad = counter.path.name, counter.num_bad
            if num_bad > self._told_bad.get(name, 0):
                lines = "1 line" if num_bad == 1 else f"{num_bad:,} lines"
                yield f"passed over in {name}: {lines} that cannot be read"
            self._told_bad[name] = num_bad


class _LineCounter:
    """Counts lines in a file that grows, reading each once."""

    def __init__(self, path: Path, kind: type[Any]) -> None:
        self.path, self._kind = path, kind
        self._restart()

    def _restart(self) -> None:
        self._last_line, self._offset = b"", 0
        self.num_skipped, self.num_bad = 0, 0

    def read_on(self) -> None:
        """Count the lines that are new."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset - len(self._last_line))
            if file.read(len(self._last_line)) != self._last_line:
                # A training that goes on from a checkpoint cuts its history back.
                self._restart()
                file.seek(0)
            content = file.read()
        lines = whole_lines(content)
        if lines:
            self.num_skipped += sum(SKIPPED_MARK in line for line in lines)
            self.num_bad += read_lines(lines, self._kind).num_bad
            self._offset += content.rfind(b"\n") + 1
            self._last_line = lines[-1] + b"\n"


def _draw_bar(watch: _Watch, *, total_steps: int, is_over: Flag, console: Console) -> None:
    progress = Progress(
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(bar_width=30),
        TextColumn("{task.description}"),
        console=console,
        auto_refresh=False,
    )
    task = progress.add_task("starting the workers", total=total_steps)
    figures = Text()
    with Live(Group(progress, figures), console=console, refresh_per_second=4):
        while True:
            was_over = is_over.wait(_POLL_S)
            for line in watch.look():
                console.print(line, markup=False, highlight=False)
            if records := watch.records:
                left = describe_time_left(records, total_steps=total_steps)
                progress.update(task, completed=records[-1].step, description=left)
                figures.plain = watch.describe()
            if was_over and watch.is_stopped_early:
                progress.update(task, total=watch.records[-1].step, description="stopped early")
            if was_over:
                return


def _print_lines(watch: _Watch, *, total_steps: int, is_over: Flag, console: Console) -> None:
    due, shown = 1, 0
    while True:
        was_over = is_over.wait(_POLL_S)
        for line in watch.look():
            console.print(line, markup=False, highlight=False)
        step = watch.records[-1].step if watch.records else 0
        if step >= due or (was_over and step > shown):
            due, shown = step + max(total_steps // _LINES, 1), step
            left = describe_time_left(watch.records, total_steps=total_steps)
            line = f"step {step}/{total_steps}: {watch.describe()}, {left}"
            console.print(line, markup=False, highlight=False)
        if was_over:
            return
