"""`textlane release status --watch`: a release on the screen until it is over."""

import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline.contract.errors import TextlaneError
from serve_app.release.status import UNDER_WAY, ReleaseStatus
from serve_app.release.status_table import build_status, one_line

_EVERY_S = 2.0
_LOST = ("rolled_back", "aborted", "failed_to_start", "superseded")


class StatusSource(Protocol):
    """Tells how a release stands."""

    def status(self) -> ReleaseStatus:
        """Return it; raises a TextlaneError while nobody can tell."""
        ...


def watch(
    desk: StatusSource,
    status: ReleaseStatus,
    *,
    console: Console,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Show a release anew until it is over; return 1 if it lost its traffic, else 0.

    A desk that does not answer for a while, as when its replica is replaced, is waited for. On
    what is no terminal, a line is printed for each change.

    Args:
        desk: is asked every two seconds.
        status: what it said last.
        console: to show it on.
        sleep: waits so many seconds.
    """
    if console.is_terminal:
        status = _watch_live(desk, status, console=console, sleep=sleep)
    else:
        status = _watch_lines(desk, status, console=console, sleep=sleep)
    return int(status.state in _LOST)


def _watch_live(
    desk: StatusSource,
    status: ReleaseStatus,
    *,
    console: Console,
    sleep: Callable[[float], None],
) -> ReleaseStatus:
    with Live(build_status(status), console=console, auto_refresh=False) as live:
        while status.state in UNDER_WAY:
            sleep(_EVERY_S)
            try:
                status = desk.status()
            except TextlaneError as error:
                note = Text(f"no status now: {error}", style="yellow")
                # On top, because a screen that is too low cuts off the end.
                live.update(Group(note, build_status(status)), refresh=True)
            else:
                live.update(build_status(status), refresh=True)
    return status


def _watch_lines(
    desk: StatusSource,
    status: ReleaseStatus,
    *,
    console: Console,
    sleep: Callable[[float], None],
) -> ReleaseStatus:
    line = one_line(status)
    _print(console, line)
    while status.state in UNDER_WAY:
        sleep(_EVERY_S)
        try:
            status = desk.status()
            after = one_line(status)
        except TextlaneError as error:
            after = f"no status now: {error}"
        if after != line:
            _print(console, after)
        line = after
    if status.reason:
        _print(console, f"{one_line(status).partition(':')[0]}: {status.reason}")
    return status


def _print(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
