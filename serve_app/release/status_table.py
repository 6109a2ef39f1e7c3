"""A release as tables on the screen; what comes from outside is shown without markup."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from serve_app.release.status import (
    CheckView,
    DisagreementRow,
    ReleaseHistory,
    ReleaseStatus,
    RollbackView,
    VersionView,
)
from serve_app.release.wording import (
    STATE_WORDS,
    check_figures,
    check_title,
    duration,
    figure,
    moment,
    percent,
    printable,
    spoken,
)

_STATE_STYLES = {
    "running": "green",
    "promoted": "green",
    "starting": "yellow",
    "paused": "yellow",
    "rolled_back": "bold red",
    "aborted": "red",
}
_VERDICT_STYLES = {"pass": "green", "fail": "bold red", "inconclusive": "yellow"}
_BAR_CELLS = 40
_MAX_CLASSES = 10
_MAX_SAMPLE = 5


def build_status(status: ReleaseStatus) -> RenderableType:
    """Return everything about a release that fits on a screen."""
    parts: list[RenderableType] = [*_overview(status)]
    if status.rollback:
        parts += ["", *_rollback(status.rollback, word=STATE_WORDS[status.state])]
    elif status.checks:
        parts += ["", _checks(status.checks, title="checks")]
    if status.disagreements:
        parts += ["", _disagreements(status.disagreements)]
    for one in status.drift:
        if one.level in ("moderate", "large"):
            text = f"drift: {spoken(one.feature)} of {printable(one.version)} is {one.level} "
            parts.append(
                Text(f"{text}(PSI {figure(one.psi)}): {printable(one.note)}", style="yellow")
            )
    return Group(*parts)


def print_history(past: ReleaseHistory, *, console: Console) -> None:
    """Print finished releases, the newest first, and all about its rollback, if it had one."""
    if not past.releases:
        console.print("no release has ended yet")
        return
    table = _table("releases", "ended", "as", "candidate", "took", "why", last_wide=True)
    for one in past.releases:
        table.add_row(
            Text(moment(one.ended_s)),
            Text(STATE_WORDS[one.state], style=_STATE_STYLES.get(one.state, "")),
            Text(printable(one.candidate.version)),
            Text(duration(one.ended_s - one.started_s)),
            Text(printable(one.reason)),
        )
    console.print(table)
    last = past.releases[0]
    if last.rollback:
        word = f"the newest was {STATE_WORDS[last.state]}"
        console.print(Group("", *_rollback(last.rollback, word=word)))


def one_line(status: ReleaseStatus) -> str:
    """Return a release in one line, for logs."""
    line = STATE_WORDS[status.state]
    if status.candidate:
        line += f": {printable(status.candidate.version)} at {percent(status.weight)}"
    if status.step:
        line += f", step {status.step.number} of {status.step.num_steps}"
    verdicts = [f"{check_title(check)} {check.verdict}" for check in status.checks]
    return line + (f"; {', '.join(verdicts)}" if verdicts else "")


def _overview(status: ReleaseStatus) -> list[RenderableType]:
    style = _STATE_STYLES.get(status.state, "")
    head = Text.assemble("release ", (STATE_WORDS[status.state], style or "bold"))
    if status.release_id:
        head.append(f"  {printable(status.release_id)}", style="dim")
    lines: list[RenderableType] = [head]
    if status.candidate is None:
        lines.append(_version("stable   ", status.stable, 1.0))
        lines.append(Text("start one with: textlane release start BUNDLE", style="dim"))
        return lines
    weight = status.weight
    if status.state != "promoted":
        lines.append(_version("stable   ", status.stable, 1.0 - weight))
        lines.append(_version("candidate", status.candidate, weight))
        num_filled = round(weight * _BAR_CELLS) or int(weight > 0.0)
        bar = Text("█" * num_filled, style="blue")
        lines.append(bar.append("░" * (_BAR_CELLS - num_filled), style="dim"))
    else:
        lines.append(_version("stable   ", status.stable, 1.0))
    if status.step:
        lines.append(Text(_step_line(status)))
    if status.reason and not status.rollback:
        lines.append(Text(printable(status.reason), style="dim"))
    return lines


def _step_line(status: ReleaseStatus) -> str:
    step = status.step
    assert step is not None
    time = f"its {duration(step.dwell_s)} are over"
    if step.remaining_s > 0.0:
        time = f"at least {duration(step.remaining_s)} more of {duration(step.dwell_s)}"
    line = f"step {step.number} of {step.num_steps} at {percent(step.weight)}, {time}"
    if step.waits_for:
        line += f"; waits for {', '.join(map(spoken, step.waits_for))}"
    return line


def _version(role: str, version: VersionView, share: float) -> Text:
    text = Text(f"{role} {percent(share):>6}  ")
    text.append(printable(version.version), style="bold")
    return text.append(f"  {printable(version.bundle)}", style="dim")


def _checks(checks: Sequence[CheckView], *, title: str) -> Table:
    table = _table(title, "check", "verdict", "found", "samples", "test", last_wide=True)
    for check in checks:
        counts = " / ".join(f"{count:,}" for count in check.samples.values())
        table.add_row(
            Text(check_title(check)),
            Text(check.verdict, style=_VERDICT_STYLES[check.verdict]),
            Text(check_figures(check)),
            Text(counts),
            Text(printable(check.test), style="dim"),
        )
    return table


def _rollback(record: RollbackView, *, word: str) -> list[RenderableType]:
    by = {"check": "a check", "hard_limit": "a hard limit", "person": "a person"}
    lines: list[RenderableType] = [
        Text(
            f"{word} by {by[record.decided_by]} at {moment(record.at_s)}, in step "
            f"{record.step_number} at {percent(record.weight)}: {printable(record.reason)}",
            style="red",
        )
    ]
    if record.checks:
        lines.append(_checks(record.checks, title="checks as they stood"))
    shown = [printable(one.request_id) for one in record.disagreements[:_MAX_SAMPLE]]
    if shown:
        more = len(record.disagreements) - len(shown)
        ids = ", ".join(shown) + (f" and {more} more (--json)" if more else "")
        lines.append(Text(f"sample disagreements: {ids}"))
    return lines


def _disagreements(rows: Sequence[DisagreementRow]) -> Table:
    table = _table(
        "where the two versions disagree",
        *("texts", "compared", "other label", "shifted score", "no answer"),
    )
    classes = [row for row in rows if row.by == "label"]
    worst = sorted(classes, key=lambda row: -row.num_flips)[:_MAX_CLASSES]
    for row in [*(row for row in rows if row.by != "label"), *worst]:
        name = "all" if row.by == "all" else f"{row.by} {printable(row.group)}"
        counts = (row.num_flips, row.num_shifts, row.num_failed)
        shares = (
            percent(count / row.num_compared) if row.num_compared else "–" for count in counts
        )
        table.add_row(Text(name), f"{row.num_compared:,}", *shares)
    if len(classes) > len(worst):
        table.caption = f"and {len(classes) - len(worst)} more classes (--json)"
    return table


def _table(title: str, *columns: str, last_wide: bool = False) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    for column in columns:
        is_text = last_wide or column == columns[0]
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    return table
