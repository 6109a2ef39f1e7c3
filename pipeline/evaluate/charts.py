"""The report's pictures; each takes plain figures and returns a chart."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.drawing import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    SURFACE,
    Chart,
    cut_tallest_bar,
    draw_chart,
    tidy_axis,
)

_MAX_NUMBERED_LABELS = 12
_MAX_NAMED_LABELS = 30
_MAX_POINTS = 1500
_TALL, _LOW = 3.3, 2.7  # inches
_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")

Numbers = NDArray[np.float64]


def draw_loss(history: Sequence[Mapping[str, Any]]) -> Chart:
    """Return loss (raw and smoothed) over learning rate, both by step."""
    steps, loss = _column(history, "step"), _column(history, "loss")
    window = max(1, len(loss) // 40)
    smooth, shown = _running_mean(loss, window), _thinned(len(steps))

    def draw(figure: Figure) -> str:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        upper.plot(steps[shown], loss[shown], color=BLUE, alpha=0.3, linewidth=0.8)
        upper.plot(steps[shown], smooth[shown], color=BLUE)
        upper.set_ylabel("loss")
        upper.set_ylim(bottom=0, top=float(np.quantile(loss, 0.995)) * 1.15 or 1.0)
        _note_last(upper, steps[-1], smooth[-1], f"{smooth[-1]:.3f}")
        rates = _column(history, "lr")
        lower.plot(steps[shown], rates[shown], color=ORANGE)
        lower.set_ylabel("learning rate")
        peak = float(rates.max()) or 1.0
        lower.set_ylim(0, peak * 1.1)
        lower.set_yticks([0, peak], ["0", f"{peak:.2g}"])
        lower.set_xlabel("step")
        lower.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.align_ylabels()
        mean = f", its mean over {window} steps" if window > 1 else ""
        return f"Training loss of every step{mean}; below it the learning rate."

    return draw_chart("loss", "Loss and learning rate", draw, height_inches=_TALL)


def draw_throughput(history: Sequence[Mapping[str, Any]]) -> Chart:
    """Return real (not padding) tokens per second of training, by step."""
    steps, seconds = _column(history, "step"), _column(history, "seconds")
    rate = _column(history, "tokens") / np.maximum(seconds, 1e-9)
    overall = _column(history, "tokens").sum() / max(seconds.sum(), 1e-9)
    window = max(1, len(rate) // 40)
    shown = _thinned(len(steps))

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        axes.plot(steps[shown], rate[shown], color=GREEN, alpha=0.3, linewidth=0.8)
        axes.plot(steps[shown], _running_mean(rate, window)[shown], color=GREEN)
        axes.set_ylim(bottom=0, top=float(np.quantile(rate, 0.99)) * 1.2 or 1.0)
        axes.set_ylabel("tokens per second")
        axes.set_xlabel("step")
        axes.yaxis.set_major_formatter(_THOUSANDS)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return f"Real tokens, padding not counted: {overall:,.0f} per second over the whole run."

    return draw_chart("throughput", "Training speed", draw, height_inches=_TALL)


def draw_confusion(confusion: IntArray, labels: Sequence[str]) -> Chart:
    """Return the confusion matrix, each row shaded by its share of the true label."""
    size = len(labels)
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        for row, column in np.argwhere(confusion > 0).tolist():
            share, colour = float(shares[row, column]), BLUE if row == column else ORANGE
            cell = (column - 0.48, row - 0.48)
            axes.add_patch(
                Rectangle(cell, 0.96, 0.96, color=colour, alpha=0.08 + 0.8 * share, linewidth=0)
            )
        if size <= _MAX_NUMBERED_LABELS:
            _number_cells(axes, confusion, shares)
        axes.set_xlim(-0.5, size - 0.5)
        axes.set_ylim(size - 0.5, -0.5)
        names = [shorten_label(label) for label in labels] if size <= _MAX_NAMED_LABELS else []
        turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if size > 4 else {}
        axes.set_xticks(range(len(names)), names, **turned)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.spines[:].set_visible(size > _MAX_NUMBERED_LABELS)
        tidy_axis(axes, grid="none")
        return "Rows are the true labels. Blue is right, orange wrong; darker is a larger share."

    height = _TALL if size <= 4 else 4.4
    return draw_chart("confusion", "Confusion matrix", draw, height_inches=height)


def draw_buckets(
    per_bucket: Sequence[Mapping[str, Any]], accuracy: float, *, measure: str = "accuracy"
) -> Chart:
    """Return accuracy with its 95 % interval for each length bucket, and the rows below.

    ``measure`` is what accuracy is called for this task.
    """
    names = [f"{bucket['min_tokens']}–{bucket['max_tokens']}" for bucket in per_bucket]
    values = np.array([bucket["accuracy"] for bucket in per_bucket])
    ends = np.array([bucket["accuracy_95"] for bucket in per_bucket])
    places = np.arange(len(names))

    def draw(figure: Figure) -> str:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        upper.axhline(accuracy, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        upper.vlines(places, ends[:, 0], ends[:, 1], color=BLUE, linewidth=4, alpha=0.28)
        upper.plot(places, values, "o", color=BLUE, markersize=6)
        upper.set_ylim(max(0.0, float(ends.min()) - 0.04), min(1.0, float(ends.max()) + 0.03))
        upper.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        upper.set_ylabel(measure)
        lower.bar(places, [bucket["rows"] for bucket in per_bucket], color=MUTED, alpha=0.5)
        lower.set_ylabel("texts")
        lower.yaxis.set_major_formatter(_THOUSANDS)
        lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if len(names) > 6 else {}
        lower.set_xticks(places, names, **turned)
        lower.set_xlabel("tokens in the text")
        figure.align_ylabels()
        return f"Dots are {measure}, bars its 95 % interval; the dashed line is all texts together."

    title = f"{measure.capitalize()} by text length"
    return draw_chart("buckets", title, draw, height_inches=_TALL)


def draw_lengths(lengths: IntArray, bucket_edges: IntArray) -> Chart:
    """Return the histogram of training lengths with the bucket edges."""
    longest = int(bucket_edges[-1])
    width = max(1, int(np.ceil(longest / 48)))

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        bins = np.arange(0.5, longest + width + 0.5, width)
        counts, _, _ = axes.hist(lengths, bins=bins.tolist(), color=BLUE, alpha=0.65, rwidth=0.9)
        cut_tallest_bar(axes, np.asarray(counts, dtype=np.float64), bins)
        for edge in bucket_edges.tolist():
            axes.axvline(edge + 0.5, color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlim(0, longest + 1)
        axes.set_xlabel("tokens in the text")
        axes.set_ylabel("training texts")
        axes.yaxis.set_major_formatter(_THOUSANDS)
        edges = ", ".join(str(edge) for edge in bucket_edges.tolist())
        return f"Dashed lines are the upper edges of the buckets: {edges}."

    return draw_chart("lengths", "Text lengths and buckets", draw, height_inches=_LOW)


def draw_padding(padding: Mapping[str, float]) -> Chart:
    """Return the share of padding for three orders of the same training rows."""
    names = {
        "random": "random order",
        "buckets": "by bucket",
        "buckets_window": "by bucket,\nsorted in a window",
    }
    shares = [float(padding[key]) for key in names]

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        axes.barh(list(names.values()), shares, color=[MUTED, BLUE, GREEN], height=0.55, alpha=0.75)
        for place, share in enumerate(shares):
            axes.text(
                share + max(shares) * 0.015, place, f"{share:.1%}", va="center", fontweight="bold"
            )
        axes.invert_yaxis()
        axes.set_xlim(0, max(shares) * 1.18 or 1.0)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("padding among all tokens")
        axes.spines["left"].set_visible(False)
        tidy_axis(axes, grid="x")
        return (
            "Tokens that a padded batch wastes, for the same rows in three orders; "
            "training uses the last."
        )

    return draw_chart("padding", "Padding", draw, height_inches=_LOW)


def _number_cells(axes: Axes, confusion: IntArray, shares: Numbers) -> None:
    for row, column in np.ndindex(*confusion.shape):
        share = float(shares[row, column])
        axes.text(
            column,
            row,
            f"{int(confusion[row, column]):,}",
            ha="center",
            va="center",
            color=SURFACE if share > 0.55 else INK if confusion[row, column] else MUTED,
            fontweight="bold" if row == column else "normal",
            fontsize=12 if len(confusion) <= 4 else 8,
        )


def _note_last(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(
        text,
        (x, y),
        xytext=(0, 16),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontweight="bold",
    )


def _column(history: Sequence[Mapping[str, Any]], name: str) -> Numbers:
    return np.array([row[name] for row in history], dtype=np.float64)


def _running_mean(values: Numbers, window: int) -> Numbers:
    sums = np.cumsum(np.concatenate([np.zeros(1), values]))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - window)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins), dtype=np.float64)


def _thinned(count: int) -> IntArray:
    # The file stays small however long the run: evenly spaced points, the last included.
    return np.unique(np.linspace(0, count - 1, min(count, _MAX_POINTS)).astype(np.int64))


def shorten_label(label: str, max_chars: int = 18) -> str:
    """Return a label that fits beside an axis; a longer one is cut and ended by ``…``."""
    return label if len(label) <= max_chars else f"{label[: max_chars - 1]}…"
