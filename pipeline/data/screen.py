"""What prepare shows while it works: bars on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

Advance = Callable[[int], None]
"""Is told how many more rows are done."""
_MAX_LINES = 40


class PrepareScreen:
    """Tells people on standard error how far the work is and what became of the rows."""

    def __init__(self, console: Console | None = None) -> None:
        """Write to standard error, or to another console."""
        self._console = console or Console(stderr=True, soft_wrap=True)

    @contextmanager
    def step(self, doing: str, num_rows: int | None = None) -> Iterator[Advance]:
        """Show one pass over the rows; give the function that is told of its progress.

        Args:
            doing: what is done, such as ``reading 3 files``.
            num_rows: of how many rows, if that is known.
        """
        if not self._console.is_terminal:
            of_rows = "" if num_rows is None else f" {num_rows:,} rows"
            self._console.print(f"prepare: {doing}{of_rows}")
            yield lambda rows: None
            return
        columns = (
            SpinnerColumn(),
            TextColumn("prepare: {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(doing, total=num_rows)
            yield lambda rows: progress.advance(task, rows)
            progress.update(task, total=progress.tasks[0].completed)

    def note(self, text: str) -> None:
        """Show a sentence."""
        self._console.print(f"prepare: {text}", markup=False, highlight=False)

    def show_rejected(self, rows: Mapping[str, Any]) -> None:
        """Show which files' rows were rejected and why; nothing if none was.

        Args:
            rows: the manifest's ``rows``.
        """
        if not rows["rejected"]:
            return
        table = Table(title=f"{rows['rejected']:,} of {rows['read']:,} rows rejected")
        table.add_column("file", overflow="fold")
        table.add_column("reason")
        table.add_column("rows", justify="right")
        lines = [
            (file, reason, f"{count:,}")
            for file, counts in rows["by_file"].items()
            for reason, count in counts["rejected_by_reason"].items()
        ]
        for line in lines[:_MAX_LINES]:
            table.add_row(*line)
        if len(lines) > _MAX_LINES:
            table.add_row(f"… {len(lines) - _MAX_LINES:,} more lines are in the manifest", "", "")
        self._console.print(table)
