"""The pictures of a report: latency over time, its distribution, throughput."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from serve_app.load.axes import (
    LEFT,
    RIGHT,
    WIDTH,
    Scale,
    as_path,
    as_picture,
    as_time,
    draw_columns,
    draw_rows,
    draw_time_axis,
    linear_ticks,
    log_range,
    log_ticks,
)
from serve_app.load.record import Sample
from serve_app.load.summary import Second, percentiles_ms

_LEAST_MS = 0.01
_MOST_DOTS = 1500
"""Chosen: shows every shape, and the page stays under 200 kB."""
_MOST_STEPS = 60
_BINS = 72


@dataclass(frozen=True, kw_only=True)
class Series:
    """Requests that are drawn in one colour."""

    name: str
    color: int
    """Which of the page's colours ``--c0`` … it has."""
    samples: tuple[Sample, ...]
    """Those with a latency."""


def draw_latency(series: Sequence[Series], *, from_s: float, measured_s: float) -> str:
    """Return latency over the time when requests were due: dots, P50 and P99 of each class."""
    height, bottom = 300.0, 270.0
    low, high = log_range([_ms(sample) for one in series for sample in one.samples])
    x = Scale(low=0.0, high=measured_s, start=LEFT, end=WIDTH - RIGHT)
    y = Scale(low=low, high=high, start=bottom, end=12.0, is_log=True)
    ticks = log_ticks(low, high)
    parts = draw_rows(y, ticks, [as_time(tick) for tick in ticks])
    parts += draw_time_axis(x, bottom=bottom)
    most = max(1, _MOST_DOTS // len(series))
    for one in series:
        dots = "".join(
            f"M{x.at(sample.due_s - from_s)} {y.at(_ms(sample))}h0"
            for sample in _thin(one.samples, most)
        )
        parts.append(f'<path class="dots" style="--c:var(--c{one.color})" d="{dots}"/>')
    for one in series:
        if not all(sample.is_timeout for sample in one.samples):
            parts += _lines(one, x=x, y=y, from_s=from_s)
    timeouts = "".join(
        f"M{x.at(sample.due_s - from_s) - 3} {y.at(_ms(sample)) - 3}l6 6m0 -6l-6 6"
        for one in series
        for sample in _thin([sample for sample in one.samples if sample.is_timeout], most)
    )
    parts += [f'<path class="timeouts" d="{timeouts}"/>'] if timeouts else []
    return as_picture(parts, height=height, label="Latency of requests over the time of the run")


def _lines(one: Series, *, x: Scale, y: Scale, from_s: float) -> list[str]:
    step_s = max(1.0, math.ceil(x.high / _MOST_STEPS))
    by_step: dict[int, list[float]] = {}
    for sample in one.samples:
        by_step.setdefault(int((sample.due_s - from_s) / step_s), []).append(sample.latency_s)
    points: dict[str, list[tuple[float, float]]] = {"p50": [], "p99": []}
    for step, values in sorted(by_step.items()):
        figures = percentiles_ms(values)
        if figures is None:
            continue
        middle = x.at((step + 0.5) * step_s)
        for name, line in points.items():
            line.append((middle, y.at(max(getattr(figures, name), _LEAST_MS))))
    return [
        f'<path class="line {name}" style="--c:var(--c{one.color})" d="{as_path(line)}">'
        f"<title>{escape(one.name)} {name.upper()}</title></path>"
        for name, line in points.items()
        if line
    ]


def draw_distribution(series: Sequence[Series]) -> str:
    """Return a histogram of the latencies of each class, with P50 and P99, on one log axis."""
    row, height = 92.0, 92.0 * len(series) + 40.0
    low, high = log_range([_ms(sample) for one in series for sample in one.samples])
    x = Scale(low=low, high=high, start=LEFT, end=WIDTH - RIGHT, is_log=True)
    parts = []
    for number, one in enumerate(series):
        parts += _histogram(one, x=x, top=number * row + 24.0, bottom=(number + 1) * row)
    ticks = log_ticks(low, high)
    labels = [as_time(tick) for tick in ticks]
    parts += draw_columns(x, ticks, labels, bottom=height - 40.0)
    return as_picture(parts, height=height, label="Distribution of the latencies of each class")


def _histogram(one: Series, *, x: Scale, top: float, bottom: float) -> list[str]:
    width = (x.end - x.start) / _BINS
    pixels = [x.at(_ms(sample)) for sample in one.samples]
    counts = Counter(min(int((pixel - x.start) / width), _BINS - 1) for pixel in pixels)
    y = Scale(low=0.0, high=max(counts.values()), start=bottom, end=top)
    bars = "".join(
        f"M{x.start + number * width + 0.5:.1f} {bottom}V{y.at(count)}h{width - 1:.1f}V{bottom}z"
        for number, count in sorted(counts.items())
    )
    parts = [
        f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>',
        f'<path class="bars" style="--c:var(--c{one.color})" d="{bars}"/>',
        f'<text class="name" x="{LEFT}" y="{top - 8}">{escape(one.name)}</text>',
    ]
    figures, shown = percentiles_ms([sample.latency_s for sample in one.samples]), []
    for name in ("p50", "p99") if figures else ():
        value = max(getattr(figures, name), _LEAST_MS)
        pixel = x.at(value)
        parts.append(f'<path class="mark" d="M{pixel} {bottom}V{top - 2}"/>')
        shown.append(f"{name.upper()} {as_time(float(f'{value:.3g}'))}")
    # Beside each other: above their marks they would overlap where the marks are close.
    parts.append(
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{top - 8}" text-anchor="end">'
        f"{' · '.join(shown)}</text>"
    )
    return parts


def draw_throughput(seconds: Sequence[Second], *, measured_s: float) -> str:
    """Return what was due and what came of it in each second."""
    height, bottom = 240.0, 210.0
    # A last second that was not a whole one would look like a breakdown.
    whole = [second for second in seconds if second.start_s + 1 <= measured_s] or list(seconds)
    counts = {
        "due": [second.num_due for second in whole],
        "answered": [second.num_answered for second in whole],
        "shed": [second.num_shed for second in whole],
        "failed": [second.num_failed for second in whole],
    }
    x = Scale(low=0.0, high=measured_s, start=LEFT, end=WIDTH - RIGHT)
    high = max(1, *[count for series in counts.values() for count in series])
    y = Scale(low=0.0, high=high * 1.05, start=bottom, end=12.0)
    ticks = [tick for tick in linear_ticks(y.high) if tick == int(tick)]
    parts = draw_rows(y, ticks, [f"{tick:,.0f}" for tick in ticks])
    parts += draw_time_axis(x, bottom=bottom)
    for name, series in counts.items():
        if name in ("due", "answered") or any(series):
            edges = [
                (x.at(second.start_s + side), y.at(count))
                for second, count in zip(whole, series, strict=True)
                for side in (0, 1)
            ]
            parts.append(f'<path class="steps {name}" d="{as_path(edges)}"/>')
    return as_picture(parts, height=height, label="Requests due, answered, shed, failed per second")


def _ms(sample: Sample) -> float:
    return max(sample.latency_s * 1000.0, _LEAST_MS)


def _thin(samples: Sequence[Sample], most: int) -> Sequence[Sample]:
    """Return at most so many samples: the slowest third, and every k-th of the others."""
    if len(samples) <= most:
        return samples
    by_latency = sorted(samples, key=lambda sample: sample.latency_s)
    num_slow = most // 3
    others = sorted(by_latency[: len(samples) - num_slow], key=lambda sample: sample.due_s)
    step = math.ceil(len(others) / (most - num_slow))
    return [*others[::step], *by_latency[len(samples) - num_slow :]]
