"""The pictures of a training's course, from the rows of its logs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, PercentFormatter

from pipeline.contract.batching import IntArray
from pipeline.drawing import BLUE, GREEN, INK, MUTED, ORANGE, Chart, draw_chart
from pipeline.evaluate.judged import Numbers
from pipeline.evaluate.training_log import FIGURES, Row, figure_name

_MAX_PIECES = 600
_HEIGHT_INCHES = 3.3
_DASHED: Any = (0, (4, 3))
_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def draw_loss(steps: Sequence[Row], validations: Sequence[Row], *, best_by: str) -> Chart:
    """Return the loss of training, raw and smoothed, and of the validation rows over it.

    ``best_by`` is what people call the figure that the best measurement is chosen by.
    """
    rows = [row for row in steps if row["loss"] is not None and np.isfinite(row["loss"])]
    at, loss = _column(rows, "step"), _column(rows, "loss")
    window = _window_of(loss)
    measured = _column(validations, "loss")

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        _draw_smoothed(axes, at, loss, colour=BLUE, name="training")
        top = float(np.quantile(loss, 0.995)) if len(loss) else 0.0
        if len(validations):
            places = _column(validations, "step")
            axes.plot(places, measured, "o-", color=ORANGE, markersize=3.5, label="validation")
            _mark_best(axes, validations, "loss")
            figure.legend(loc="outside upper left", ncols=2, frameon=False)
            top = max(top, float(np.quantile(measured, 0.9)))
        axes.set_ylim(bottom=0, top=top * 1.15 or 1.0)
        axes.set_ylabel("loss")
        _name_steps(axes)
        mean = f" and its mean over {window} steps" if window > 1 else ""
        lead = f"Training loss of every step{mean}."
        return f"{lead} {_describe_best(validations, best_by)}".strip()

    return draw_chart("loss", "Loss", draw, height_inches=_HEIGHT_INCHES)


def draw_validation(validations: Sequence[Row], *, measure: str, best_by: str) -> Chart:
    """Return accuracy and F1 of the validation rows by step.

    ``measure`` is what accuracy is called for this task, ``best_by`` what people call the
    figure that the best measurement is chosen by.
    """
    shares = [name for name in FIGURES if name != "loss"]
    shown = [name for name in shares if validations[0][name] is not None]
    names = {name: figure_name(name, measure=measure) for name in shown}

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        at = _column(validations, "step")
        for name, colour in zip(shown, (BLUE, GREEN, ORANGE), strict=False):
            values = _column(validations, name)
            axes.plot(at, values, "o-", color=colour, markersize=3.5, label=names[name])
        best = [row for row in validations if row["is_best"]]
        if best:
            axes.axvline(best[-1]["step"], color=MUTED, linewidth=0.9, linestyle=_DASHED)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("share")
        axes.set_xlim(left=0)
        _name_steps(axes)
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
        last = ", ".join(f"{names[name]} {validations[-1][name]:.1%}" for name in shown)
        line = f" The dashed line is the best measurement by {best_by}." if best else ""
        return f"On the validation rows; at the end {last}.{line}"

    return draw_chart("validation", "Validation", draw, height_inches=_HEIGHT_INCHES)


def draw_optimisation(steps: Sequence[Row]) -> Chart:
    """Return learning rate, gradient norm and, for fp16, the loss scale by step."""
    has_scale = any(row["loss_scale"] != 1.0 for row in steps)
    skipped = [row["step"] for row in steps if row["skipped"]]
    at = _column(steps, "step")

    def draw(figure: Figure) -> str:
        panels = figure.subplots(3 if has_scale else 2, 1, sharex=True)
        _draw_line(panels[0], at, _column(steps, "lr"), colour=ORANGE)
        panels[0].set_ylabel("rate")
        peak = float(_column(steps, "lr").max()) or 1.0
        panels[0].set_ylim(0, peak * 1.1)
        panels[0].set_yticks([0, peak], ["0", f"{peak:.2g}"])
        norms = _column(steps, "grad_norm")
        is_finite = np.isfinite(norms)
        _draw_smoothed(panels[1], at[is_finite], norms[is_finite], colour=BLUE, name="norm")
        top = float(np.quantile(norms[is_finite], 0.99)) if is_finite.any() else 1.0
        panels[1].set_ylim(0, top * 1.2 or 1.0)
        panels[1].set_ylabel("norm")
        text = "Learning rate; L2 norm of the gradients before clipping"
        if has_scale:
            _draw_scale(panels[2], at, _column(steps, "loss_scale"), skipped)
            text += f"; loss scale of fp16, {len(skipped):,} steps skipped (marked)"
        _name_steps(panels[-1])
        figure.align_ylabels()
        return f"{text}."

    title = "Learning rate, gradients, loss scale" if has_scale else "Learning rate and gradients"
    return draw_chart("optimisation", title, draw, height_inches=_HEIGHT_INCHES)


def draw_speed(steps: Sequence[Row]) -> Chart:
    """Return real (not padding) tokens per second and the share of padding, by step."""
    at, seconds, tokens = (_column(steps, name) for name in ("step", "seconds", "tokens"))
    rate = tokens / np.maximum(seconds, 1e-9)
    overall = tokens.sum() / max(seconds.sum(), 1e-9)
    padding = _column(steps, "padding_share")
    run = tokens / np.maximum(1.0 - padding, 1e-9)

    def draw(figure: Figure) -> str:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _draw_smoothed(upper, at, rate, colour=GREEN, name="tokens per second")
        upper.set_ylim(bottom=0, top=float(np.quantile(rate, 0.99)) * 1.2 or 1.0)
        upper.set_ylabel("tokens per second")
        upper.yaxis.set_major_formatter(_THOUSANDS)
        _draw_smoothed(lower, at, padding, colour=MUTED, name="padding")
        lower.set_ylim(0, max(float(np.quantile(padding, 0.995)) * 1.2, 0.05))
        lower.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        lower.yaxis.set_major_locator(MaxNLocator(2))
        lower.set_ylabel("padding")
        _name_steps(lower)
        figure.align_ylabels()
        share = 1.0 - tokens.sum() / max(run.sum(), 1e-9)
        return (
            f"Real tokens, padding not counted: {overall:,.0f} per second over the whole run; "
            f"{share:.1%} of all tokens that were run are padding."
        )

    return draw_chart("throughput", "Training speed", draw, height_inches=_HEIGHT_INCHES)


def draw_memory(steps: Sequence[Row]) -> Chart:
    """Return the memory of rank 0 by step, and where the micro-batch fell."""
    on_cuda = any(row["memory_reserved_bytes"] is not None for row in steps)
    peak = _column(steps, "memory_peak_bytes")
    unit, size = ("GB", 1e9) if peak.max() >= 1e9 else ("MB", 1e6)
    falls = [
        (after["step"], after["micro_batch"])
        for before, after in pairwise(steps)
        if after["micro_batch"] < before["micro_batch"]
    ]
    lines = [("memory_allocated_bytes", BLUE, "allocated" if on_cuda else "resident")]
    if on_cuda:
        lines.append(("memory_reserved_bytes", MUTED, "reserved"))
    lines.append(
        ("memory_peak_bytes", ORANGE, "peak within the step" if on_cuda else "peak so far")
    )

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        at = _column(steps, "step")
        for name, colour, title in lines:
            _draw_smoothed(axes, at, _column(steps, name) / size, colour=colour, name=title)
        for step, _ in falls:
            axes.axvline(step, color=INK, linewidth=0.9, linestyle=_DASHED)
        axes.set_ylim(bottom=0)
        axes.margins(y=0.12)
        axes.set_ylabel(unit)
        _name_steps(axes)
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
        what = "CUDA memory of" if on_cuda else "Memory of the process of"
        lead = f"{what} rank 0, each step and its mean; peak {peak.max() / size:,.1f} {unit}."
        fell = ", ".join(f"to {rows} at step {step:,}" for step, rows in falls)
        return f"{lead} Dashed: the micro-batch fell {fell}." if falls else lead

    return draw_chart("memory", "Memory", draw, height_inches=_HEIGHT_INCHES)


def _draw_scale(axes: Axes, at: Numbers, scale: Numbers, skipped: Sequence[int]) -> None:
    axes.step(at, scale, where="post", color=GREEN)
    axes.set_yscale("log", base=2)
    # Where growth and halving are seen even if the scale never moved.
    axes.set_ylim(float(scale.min()) / 4, float(scale.max()) * 4)
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=4))
    axes.yaxis.set_major_formatter(_THOUSANDS)
    axes.minorticks_off()
    axes.set_ylabel("scale")
    below = float(scale.min()) / 2
    axes.plot(skipped, [below] * len(skipped), "|", color=ORANGE, markersize=7)


def _draw_smoothed(axes: Axes, at: Numbers, values: Numbers, *, colour: str, name: str) -> None:
    _draw_line(axes, at, values, colour=colour, alpha=0.3, linewidth=0.8)
    mean = _running_mean(values, _window_of(values))
    _draw_line(axes, at, mean, colour=colour, name=name)


def _draw_line(
    axes: Axes, at: Numbers, values: Numbers, *, colour: str, name: str = "", **style: Any
) -> None:
    shown = thin(values)
    # One point alone makes no line.
    marker = "o" if len(shown) == 1 else ""
    label = name or "_nolegend_"
    axes.plot(at[shown], values[shown], color=colour, marker=marker, label=label, **style)


def _mark_best(axes: Axes, validations: Sequence[Row], name: str) -> None:
    best = [row for row in validations if row["is_best"]]
    if not best:
        return
    at, value = best[-1]["step"], best[-1][name]
    axes.plot([at], [value], "o", markersize=10, markerfacecolor="none", color=ORANGE)
    axes.annotate(
        f"best: {value:.3f}",
        (at, value),
        xytext=(0, 12),
        textcoords="offset points",
        ha="right" if at > axes.get_xlim()[1] / 2 else "left",
        color=INK,
        fontweight="bold",
    )


def _describe_best(validations: Sequence[Row], best_by: str) -> str:
    best = [row for row in validations if row["is_best"]]
    if not best:
        return ""
    return f"The ring is the best measurement by {best_by}, step {best[-1]['step']:,}."


def _name_steps(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(_THOUSANDS)


def _column(rows: Sequence[Row], name: str) -> Numbers:
    values = [np.nan if row[name] is None else row[name] for row in rows]
    return np.array(values, dtype=np.float64)


def _window_of(values: Numbers) -> int:
    return max(1, len(values) // 40)


def _running_mean(values: Numbers, window: int) -> Numbers:
    sums = np.cumsum(np.concatenate([np.zeros(1), values]))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - window)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins), dtype=np.float64)


def thin(values: Numbers) -> IntArray:
    """Return places to draw, ascending: of every piece of a long line its ends, lowest, highest.

    The page stays small however long the run, and no peak is lost.
    """
    count = len(values)
    if count <= 4 * _MAX_PIECES:
        return np.arange(count, dtype=np.int64)
    pieces = np.array_split(np.arange(count, dtype=np.int64), _MAX_PIECES)
    found = [
        place
        for piece in pieces
        for place in (
            piece[0],
            piece[-1],
            piece[np.nanargmin(values[piece])],
            piece[np.nanargmax(values[piece])],
        )
    ]
    return np.unique(np.array(found, dtype=np.int64))
