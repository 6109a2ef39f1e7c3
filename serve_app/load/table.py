"""A report as tables on the screen."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from serve_app.load.report import Report
from serve_app.load.wording import COLUMNS, group_cells


def print_report(report: Report, *, console: Console) -> None:
    """Print a report; what the service said is shown as it is, without markup."""
    summary = report.summary
    lines = [
        f"{report.url}: {report.arrivals}; {report.texts}",
        f"{summary.measured_s:g} s after {report.warm_up_s:g} s of warm-up, seed {report.seed}",
    ]
    _print(console, *lines)
    console.print(_latencies(report))
    late = summary.begun_late_ms
    behind = f"; it sent {late.p50:.1f} ms late (P99 {late.p99:.1f})" if late else ""
    _print(
        console,
        f"throughput {summary.answered_per_s:,.1f} answers/s of {summary.due_per_s:,.1f} due/s",
        f"{summary.num_due:,} due = {summary.num_answered:,} answered + {summary.num_shed:,} shed "
        f"(429) + {summary.num_failed:,} failed + {summary.num_unanswered:,} unanswered",
        f"the load generator used {report.cpu_share:.0%} of a CPU{behind}",
    )
    if summary.failures:
        console.print(_failures(report))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="yellow"))


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _latencies(report: Report) -> Table:
    table = Table(title="latency in ms, from when requests were due", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == COLUMNS[0] else "right", no_wrap=True)
    for group in report.summary.groups:
        table.add_row(*map(Text, group_cells(group, timeout_s=report.timeout_s)))
    return table


def _failures(report: Report) -> Table:
    table = Table(title="not answered", title_justify="left")
    table.add_column("kind", no_wrap=True)
    table.add_column("count", justify="right")
    table.add_column("share", justify="right")
    table.add_column("the first one said")
    for failure in report.summary.failures:
        share = failure.count / report.summary.num_due
        cells = (failure.kind, f"{failure.count:,}", f"{share:.1%}", failure.example)
        table.add_row(*map(Text, cells))
    return table
