"""The report's pictures; each takes plain figures and returns a chart."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from pipeline.contract.batching import IntArray
from pipeline.drawing import (
    BLUE,
    GREEN,
    MUTED,
    ORANGE,
    Chart,
    cut_tallest_bar,
    draw_chart,
    tidy_axis,
)
from pipeline.quality import wilson_interval

_TALL, _LOW = 3.3, 2.7  # inches
_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


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
        upper.plot(places, values, "o", color=BLUE, markersize=6, clip_on=False)
        upper.set_ylim(max(0.0, float(ends.min()) - 0.04), min(1.0, float(ends.max()) + 0.03))
        upper.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        upper.set_ylabel(measure)
        lower.bar(places, [bucket["rows"] for bucket in per_bucket], color=MUTED, alpha=0.5)
        lower.set_ylabel("texts")
        lower.yaxis.set_major_formatter(_THOUSANDS)
        lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if len(names) > 6 else {}
        lower.set_xticks(places, names, **turned)
        # One bucket alone would be a bar as wide as the picture.
        lower.set_xlim(min(-0.6, len(names) / 2 - 2), max(len(names) - 0.4, len(names) / 2 + 1))
        lower.set_xlabel("tokens in the text")
        figure.align_ylabels()
        return f"Dots are {measure}, bars its 95 % interval; the dashed line is all texts together."

    title = f"{measure.capitalize()} by text length"
    return draw_chart("buckets", title, draw, height_inches=_TALL)


def draw_calibration(bins: Sequence[Mapping[str, Any]], error: float, *, unit: str) -> Chart:
    """Return the reliability diagram: how often answers of a confidence are right.

    Guo et al. 2017, "On Calibration of Modern Neural Networks", figure 1.

    Args:
        bins: rows of ``calibration`` in metrics.json.
        error: ``calibration_error`` in metrics.json.
        unit: what an answer is, in the plural: texts, words or labels.
    """
    sure = np.array([each["confidence"] for each in bins])
    right = np.array([each["accuracy"] for each in bins])
    counts = [each["count"] for each in bins]
    ends = np.array(
        [
            wilson_interval(round(share * count), count)
            for share, count in zip(right, counts, strict=True)
        ]
    )
    lows = np.array([each["low"] for each in bins])
    width = float(bins[0]["high"] - bins[0]["low"])

    def draw(figure: Figure) -> str:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        upper.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        upper.vlines(sure, ends[:, 0], ends[:, 1], color=BLUE, linewidth=4, alpha=0.28)
        upper.plot(sure, right, "o", color=BLUE, markersize=5, clip_on=False)
        upper.set_ylim(-0.03, 1.03)
        upper.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        upper.set_ylabel("share right")
        lower.bar(lows, counts, width=width * 0.9, align="edge", color=MUTED, alpha=0.5)
        lower.set_ylabel(unit)
        lower.yaxis.set_major_formatter(_THOUSANDS)
        lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        lower.set_xlim(0, 1.005)
        lower.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        lower.set_xlabel("confidence")
        figure.align_ylabels()
        return (
            f"Dots on the dashed line are right as often as the model was sure, below it the "
            f"model was too sure; bars are 95 % intervals. Mean gap: {error:.1%}."
        )

    return draw_chart("calibration", "Calibration", draw, height_inches=_TALL)


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


def shorten_label(label: str, max_chars: int = 18) -> str:
    """Return a label that fits beside an axis; a longer one loses its middle to an ``…``.

    Names of one kind often begin alike: ``card_payment_fee``, ``card_payment_wrong_rate``.
    """
    if len(label) <= max_chars:
        return label
    tail = (max_chars - 1) // 2
    return f"{label[: max_chars - 1 - tail]}…{label[-tail:]}"
