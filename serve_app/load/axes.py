"""Scales and axes of the pictures, as SVG text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 880
LEFT, RIGHT = 64, 26
"""Room for the labels beside the drawing, in pixels of the picture."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    """Pixel of ``low``."""
    end: float
    """Pixel of ``high``."""
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value, one tenth exact; values outside go to the edge."""
        low, high, given = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, given = math.log(low), math.log(high), math.log(given)
        return round(self.start + (given - low) / (high - low) * (self.end - self.start), 1)


def log_range(values: Sequence[float]) -> tuple[float, float]:
    """Return 1, 2 or 5 times powers of ten around positive values, at least a factor of 4 apart.

    Of 3 and 70 it is 2 and 100.
    """
    low, high = min(values), max(values)
    below = max(step for step in _steps(low / 10.0, low) if step <= low)
    above = min(step for step in _steps(high, high * 10.0) if step >= high)
    return below, max(above, 4.0 * below)


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten from ``low`` to ``high``; wide ranges get fewer."""
    ticks = [step for step in _steps(low, high) if low <= step <= high]
    if len(ticks) > 9:
        ticks = [step for step in ticks if math.log10(step) % 1 < 1e-9]
    return ticks


def linear_ticks(high: float, *, most: int = 6) -> list[float]:
    """Return round values from 0 to ``high``, at most ``most`` + 1 of them.

    Up to 47 they are 0, 10, 20, 30, 40.
    """
    step = next(step for step in _steps(high / most / 10.0, high) if step * most >= high)
    return [step * number for number in range(int(high / step + 1e-9) + 1)]


def _steps(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    # Written out and read again: 10 ** -1 * 2 would be 0.2 only almost.
    return [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]


def as_time(value_ms: float) -> str:
    """Return milliseconds for an axis: ``5 ms``, ``2 s``."""
    return f"{value_ms / 1000.0:g} s" if value_ms >= 1000.0 else f"{value_ms:g} ms"


def draw_rows(y: Scale, ticks: Sequence[float], labels: Sequence[str]) -> list[str]:
    """Return horizontal lines with their labels to the left."""
    return [
        f'<path class="grid" d="M{LEFT} {y.at(tick)}H{WIDTH - RIGHT}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y.at(tick) + 4}" text-anchor="end">{label}</text>'
        for tick, label in zip(ticks, labels, strict=True)
    ]


def draw_columns(
    x: Scale, ticks: Sequence[float], labels: Sequence[str], *, bottom: float
) -> list[str]:
    """Return labels below the drawing, each under its value, with a short mark."""
    return [
        f'<path class="axis" d="M{x.at(tick)} {bottom}v5"/>'
        f'<text class="tick" x="{x.at(tick)}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
        for tick, label in zip(ticks, labels, strict=True)
    ]


def draw_time_axis(x: Scale, *, bottom: float) -> list[str]:
    """Return the axis of the seconds of a run."""
    ticks = linear_ticks(x.high, most=10)
    labels = [f"{tick:g} s" for tick in ticks]
    line = f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>'
    return [line, *draw_columns(x, ticks, labels, bottom=bottom)]


def as_picture(parts: Sequence[str], *, height: float, label: str) -> str:
    """Return one SVG picture; ``label`` is what a screen reader says of it."""
    inside = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">\n'
        f"{inside}\n</svg>"
    )


def as_path(points: Sequence[tuple[float, float]]) -> str:
    """Return the ``d`` of a line through pixels."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
