"""Shows a running training to a person: follows the checkpoint folder, writes to stderr."""

from collections.abc import Sequence
from pathlib import Path
from threading import Event as Flag

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from pipeline.train.events import Event, read_events
from pipeline.train.figures import SKIPPED_MARK
from pipeline.train.history import (
    HISTORY_NAME,
    StepRecord,
    ValidationRecord,
    read_latest_records,
    read_validations,
)

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
        self._folder, self._skipped = folder, _SkippedCounter(folder)
        self._told = set(read_events(folder))
        self.records: list[StepRecord] = []
        self.is_stopped_early = False

    def look(self) -> list[Event]:
        """Read the latest steps; return the events that are new, oldest first."""
        new = [event for event in read_events(self._folder) if event not in self._told]
        self._told.update(new)
        self.is_stopped_early |= any(event.kind == "early_stop" for event in new)
        self.records = read_latest_records(self._folder)
        return new

    def describe(self) -> str:
        validations = read_validations(self._folder)
        return describe_step(
            self.records,
            num_skipped=self._skipped.count(),
            validation=validations[-1] if validations else None,
        )


class _SkippedCounter:
    """Counts skipped steps in a history that grows, reading each line once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / HISTORY_NAME
        self._restart()

    def _restart(self) -> None:
        self._last_line, self._offset, self._count = b"", 0, 0

    def count(self) -> int:
        with self._path.open("rb") as file:
            file.seek(self._offset - len(self._last_line))
            if file.read(len(self._last_line)) != self._last_line:
                # A training that goes on from a checkpoint cuts its history back.
                self._restart()
                file.seek(0)
            content = file.read()
        end = content.rfind(b"\n") + 1
        if end:
            self._count += content.count(SKIPPED_MARK, 0, end)
            self._offset += end
            self._last_line = content[content.rfind(b"\n", 0, end - 1) + 1 : end]
        return self._count


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
            for event in watch.look():
                console.print(describe_event(event), markup=False, highlight=False)
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
        for event in watch.look():
            console.print(describe_event(event), markup=False, highlight=False)
        step = watch.records[-1].step if watch.records else 0
        if step >= due or (was_over and step > shown):
            due, shown = step + max(total_steps // _LINES, 1), step
            left = describe_time_left(watch.records, total_steps=total_steps)
            line = f"step {step}/{total_steps}: {watch.describe()}, {left}"
            console.print(line, markup=False, highlight=False)
        if was_over:
            return
