"""A report as one self-contained page."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from serve_app.load.pictures import Series, draw_distribution, draw_latency, draw_throughput
from serve_app.load.record import Sample
from serve_app.load.report import Report
from serve_app.load.wording import COLUMNS, group_cells

_TEMPLATE = Path(__file__).with_name("page.html")
_NOTHING = "<p>No request has a latency.</p>"


def write_page(
    file: Path, report: Report, *, samples: Sequence[Sample], class_names: Sequence[str]
) -> None:
    """Write the page.

    Args:
        file: to write.
        report: the figures.
        samples: of the measured time.
        class_names: of the kinds of text.
    """
    page = build_page(report, samples=samples, class_names=class_names)
    file.write_text(page, encoding="utf-8")


def build_page(report: Report, *, samples: Sequence[Sample], class_names: Sequence[str]) -> str:
    """Return the page's HTML: no script, no address but that of the service as text."""
    series, summary = split_series(samples, class_names), report.summary
    latency = distribution = _NOTHING
    if series:
        latency = draw_latency(series, from_s=report.warm_up_s, measured_s=summary.measured_s)
        distribution = draw_distribution(series)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        url=escape(report.url),
        circumstances=_circumstances(report),
        cards=_cards(report),
        notes="".join(f"<li>{escape(note)}</li>" for note in report.notes),
        latencies=_latencies(report),
        failures=_failures(report),
        legend="".join(
            f'<span style="--c:var(--c{one.color})">{escape(one.name)}</span>' for one in series
        ),
        latency=latency,
        distribution=distribution,
        throughput=draw_throughput(summary.seconds, measured_s=summary.measured_s),
    )


def split_series(samples: Sequence[Sample], class_names: Sequence[str]) -> list[Series]:
    """Return the samples that have a latency, by kind of text, or by lane if there is one kind.

    In lanes, timeouts have a series of their own: nobody knows where they waited.
    """
    waited = [sample for sample in samples if sample.failure is None or sample.is_timeout]
    if len(class_names) > 1:
        key = [class_names[sample.text_class] for sample in waited]
        order = list(class_names)
    else:
        key = [_lane_name(sample) for sample in waited]
        order = sorted(set(key))
    found = [
        Series(
            name=name,
            color=color,
            samples=tuple(
                sample for sample, its_name in zip(waited, key, strict=True) if its_name == name
            ),
        )
        for color, name in enumerate(order)
    ]
    return [one for one in found if one.samples]


def _lane_name(sample: Sample) -> str:
    if sample.is_timeout:
        return "timeouts"
    return f"{sample.lane} lane" if sample.lane else "answers"


def _circumstances(report: Report) -> str:
    parts = (
        report.started_at,
        report.arrivals,
        report.texts,
        f"{report.summary.measured_s:g} s after {report.warm_up_s:g} s of warm-up",
        f"timeout {report.timeout_s:g} s",
        f"seed {report.seed}",
    )
    return " · ".join(escape(part) for part in parts)


def _cards(report: Report) -> str:
    summary = report.summary
    cards = (
        (f"{summary.answered_per_s:,.1f}", f"answers/s of {summary.due_per_s:,.1f} due/s"),
        (f"{summary.num_answered:,}", f"answered of {summary.num_due:,} due"),
        (f"{summary.num_shed:,}", "shed (429)"),
        (f"{summary.num_failed:,}", "failed"),
        (f"{report.cpu_share:.0%}", "of a CPU for the load generator"),
    )
    return "".join(f"<div><b>{figure}</b>{escape(text)}</div>" for figure, text in cards)


def _latencies(report: Report) -> str:
    rows = [group_cells(group, timeout_s=report.timeout_s) for group in report.summary.groups]
    return _table(COLUMNS, rows)


def _failures(report: Report) -> str:
    failures = report.summary.failures
    if not failures:
        return "<p>Every request was answered.</p>" if not report.summary.num_unanswered else ""
    rows = [
        (failure.kind, f"{failure.count:,}", failure.example or "nothing") for failure in failures
    ]
    return _table(("not answered", "count", "the first one said"), rows)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
