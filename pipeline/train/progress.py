"""Shows a running training to a person: follows history.jsonl, writes to stderr."""

from collections.abc import Sequence
from pathlib import Path
from threading import Event

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.train.history import StepRecord, read_latest_records

_POLL_S = 0.5
_LINES = 10
"""Lines in all where there is no terminal to draw a bar on."""


def show_progress(
    folder: Path, *, total_steps: int, is_over: Event, console: Console | None = None
) -> None:
    """Show step, loss, learning rate, tokens/s, padding and time left until ``is_over``."""
    console = console or Console(stderr=True)
    if console.is_terminal:
        _draw_bar(folder, total_steps=total_steps, is_over=is_over, console=console)
    else:
        _print_lines(folder, total_steps=total_steps, is_over=is_over, console=console)


def describe_step(records: Sequence[StepRecord]) -> str:
    """Return the last record's figures, the speed averaged over all that are given."""
    last = records[-1]
    tokens, seconds = sum(r.tokens for r in records), sum(r.seconds for r in records)
    return (
        f"loss {last.loss:.4f}, lr {last.lr:.2e}, {tokens / max(seconds, 1e-9):,.0f} tokens/s, "
        f"padding {last.padding_share:.1%}"
    )


def _draw_bar(folder: Path, *, total_steps: int, is_over: Event, console: Console) -> None:
    columns = (
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(bar_width=20),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting the workers", total=total_steps)
        while True:
            was_over = is_over.wait(_POLL_S)
            if records := read_latest_records(folder):
                description = describe_step(records)
                progress.update(task, completed=records[-1].step, description=description)
            if was_over:
                return


def _print_lines(folder: Path, *, total_steps: int, is_over: Event, console: Console) -> None:
    due = 1
    while True:
        was_over = is_over.wait(_POLL_S)
        records = read_latest_records(folder)
        if records and records[-1].step >= due:
            step = records[-1].step
            due = step + max(total_steps // _LINES, 1)
            left_s = sum(r.seconds for r in records) / len(records) * (total_steps - step)
            console.print(
                f"step {step}/{total_steps}: {describe_step(records)}, {left_s:.0f} s left",
                highlight=False,
            )
        if was_over:
            return
