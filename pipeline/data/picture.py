"""The picture of a shards folder: lengths with the bucket edges, and what padding costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from pipeline.contract.errors import ConfigError
from pipeline.contract.folder import write_text_atomically
from pipeline.data.inspection import Inspection
from pipeline.drawing import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    cut_tallest_bar,
    draw_chart,
    stand_alone_svg,
    tidy_axis,
)

_WIDTH_INCHES, _HEIGHT_INCHES = 8.4, 8.8
_PLOT_POINTS = 520
"""Width of the bars' area; measured, and only used to keep labels apart."""
_LABEL_POINTS = 10.5
"""Room that one upright label needs."""
_CHAR_POINTS = 5.5
_MAX_LEVEL_LABELS = 9
_NUM_BARS = 96
_MAX_NUMBERED_BUCKETS = 24
_ORDERS = {
    "random": "random order",
    "buckets": "buckets",
    "buckets_window": "buckets + window",
}

Numbers = NDArray[np.float64]


def draw_lengths(
    *,
    histogram: Mapping[str, Sequence[int]],
    buckets: Sequence[Mapping[str, Any]],
    padding: Mapping[str, float],
) -> str:
    """Return the text of an SVG file; equal figures give equal text.

    Args:
        histogram: of the train rows' lengths (:func:`~pipeline.data.lengths.length_histogram`).
        buckets: edge, rows and both paddings of each bucket, as in the manifest.
        padding: share of padding in three orders of the rows, as in the manifest.
    """

    def draw(figure: Figure) -> str:
        tokens, rows = np.array(histogram["tokens"]), np.array(histogram["rows"])
        figure.suptitle(
            f"{int(rows.sum()):,} train rows, {int((tokens * rows).sum()):,} tokens, "
            f"{len(buckets)} {'bucket' if len(buckets) == 1 else 'buckets'}",
            x=0.015,
            ha="left",
            fontsize=11.5,
            fontweight="bold",
        )
        lengths, heights, paddings, orders = figure.subplots(4, 1, height_ratios=[3, 1.1, 1.7, 1.1])
        _draw_histogram(lengths, tokens, rows, edges=[bucket["edge"] for bucket in buckets])
        heights.sharex(paddings)
        _draw_bucket_rows(heights, buckets)
        _draw_bucket_padding(paddings, buckets, shortest=int(tokens[0]))
        _draw_orders(orders, padding)
        figure.align_ylabels([lengths, heights, paddings])
        return ""

    chart = draw_chart(
        "lengths",
        "Text lengths, buckets and padding",
        draw,
        width_inches=_WIDTH_INCHES,
        height_inches=_HEIGHT_INCHES,
    )
    return stand_alone_svg(chart)


def draw_inspection(inspection: Inspection, path: Path) -> Inspection:
    """Draw the picture of inspected shards as a file; return the inspection that names it.

    Raises:
        ConfigError: the file's name does not end in ``.svg``, or it would change the shards.
    """
    if path.suffix != ".svg":
        raise ConfigError(
            "the picture is an SVG file",
            place="--picture",
            value=str(path),
            remedy="Let the name end in .svg.",
        )
    if path.resolve().is_relative_to(Path(inspection.folder).resolve()):
        raise ConfigError(
            "the picture would change the shards folder",
            place="--picture",
            value=str(path),
            remedy="Name a file outside of it.",
        )
    svg = draw_lengths(
        histogram=inspection.length_histogram,
        buckets=[bucket.model_dump() for bucket in inspection.buckets],
        padding=inspection.padding.model_dump(),
    )
    write_text_atomically(path, svg)
    return replace(inspection, picture=str(path))


def spread_labels(places: Sequence[float], *, gap: float, low: float, high: float) -> Numbers:
    """Return the places moved as little as can be so that they are ``gap`` apart.

    Least squares by pooling neighbours (isotonic regression), then kept inside ``low`` and
    ``high``. Places ascend.

    Example: ``[1, 1, 9]``, gap 2, from 0 to 10 -> ``[0, 2, 9]``.
    """
    steps = np.arange(len(places)) * gap
    pools: list[tuple[float, int]] = []
    for value in (np.asarray(places, dtype=np.float64) - steps).tolist():
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, others = pools.pop()
            mean = (before * others + mean * count) / (others + count)
            count += others
        pools.append((mean, count))
    flat = np.repeat([mean for mean, _ in pools], [count for _, count in pools])
    return np.asarray(np.clip(flat, low, max(low, high - steps[-1])) + steps, dtype=np.float64)


def _draw_histogram(
    axes: Axes, tokens: NDArray[np.int64], rows: NDArray[np.int64], *, edges: Sequence[int]
) -> None:
    longest = max(int(tokens[-1]), edges[-1])
    width = max(1, -(-longest // _NUM_BARS))
    # From the right, so that texts cut at max_seq_len share their bar with few others.
    bins = (longest + 0.5 - np.arange(-(-longest // width), -1, -1) * width).astype(np.float64)
    counts = np.histogram(tokens, bins=bins, weights=rows)[0].astype(np.float64)
    axes.bar(bins[:-1] + width / 2, counts, width=width * 0.88, color=BLUE, alpha=0.65)
    cut_tallest_bar(axes, counts, bins)
    right = longest * 1.008 + 0.6
    axes.set_xlim(0, right)
    room = _label_edges(axes, edges, right)
    axes.set_xlabel("tokens in the text")
    axes.set_ylabel("rows")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _title(axes, "Rows by length; dashed lines are the upper edges of the buckets", pad=room)


def _label_edges(axes: Axes, edges: Sequence[int], right: float) -> float:
    longest_name = len(f"{edges[-1]:,}") * _CHAR_POINTS
    is_crowded = len(edges) > _MAX_LEVEL_LABELS
    room = _LABEL_POINTS if is_crowded else longest_name + 4
    gap = right * room / _PLOT_POINTS
    keep = -(-len(edges) // int(_PLOT_POINTS / room))
    labelled = edges[::-1][::keep][::-1]
    for edge in edges:
        axes.axvline(edge + 0.5, color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
    places = spread_labels([edge + 0.5 for edge in labelled], gap=gap, low=gap / 2, high=right)
    for edge, place in zip(labelled, places.tolist(), strict=True):
        axes.annotate(
            f"{edge:,}",
            (edge + 0.5, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(place, 1.06),
            textcoords=axes.get_xaxis_transform(),
            rotation=90 if is_crowded else 0,
            ha="center",
            va="bottom",
            fontsize=8,
            color=ORANGE,
            arrowprops={
                "arrowstyle": "-",
                "color": ORANGE,
                "linewidth": 0.8,
                "shrinkB": 0,
                "relpos": (0.5, 0.0),
            },
        )
    return (longest_name if is_crowded else 11.0) + 19


def _draw_bucket_rows(axes: Axes, buckets: Sequence[Mapping[str, Any]]) -> None:
    rows = [int(bucket["rows"]) for bucket in buckets]
    axes.bar(range(len(rows)), rows, color=MUTED, alpha=0.5, width=0.8)
    axes.set_ylim(0, max(rows) * 1.28 or 1)
    axes.set_ylabel("rows")
    axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _compact(int(value))))
    axes.tick_params(labelbottom=False)
    if len(rows) <= _MAX_NUMBERED_BUCKETS:
        for place, count in enumerate(rows):
            axes.text(place, count, _compact(count), ha="center", va="bottom", fontsize=7.5)
    _title(axes, "Rows of each bucket")


def _draw_bucket_padding(
    axes: Axes, buckets: Sequence[Mapping[str, Any]], *, shortest: int
) -> None:
    is_crowded = len(buckets) > 9
    for key, name, shift, colour in (
        ("padding_to_edge", "filled to the edge", -0.2, BLUE),
        ("padding", "in training", 0.2, GREEN),
    ):
        shares = [float(bucket[key]) for bucket in buckets]
        places = [place + shift for place in range(len(buckets))]
        axes.bar(places, shares, width=0.38, color=colour, alpha=0.75, label=name)
        for place, share in zip(places, shares, strict=True):
            if len(buckets) <= _MAX_NUMBERED_BUCKETS:
                axes.annotate(
                    f"{share:.1%}",
                    (place, share),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=7,
                    rotation=90 if is_crowded else 0,
                )
    highest = max(float(max(bucket["padding_to_edge"], bucket["padding"])) for bucket in buckets)
    top = max(highest, 0.01) * (1.45 if is_crowded else 1.25)
    axes.set_ylim(0, top)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if top > 0.04 else 1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_ylabel("padding")
    _name_buckets(axes, [bucket["edge"] for bucket in buckets], shortest=shortest)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 0.98),
        ncols=2,
        frameon=False,
        labelcolor=MUTED,
        fontsize=8.5,
    )
    _title(axes, "Padding among the tokens of each bucket")


def _name_buckets(axes: Axes, edges: Sequence[int], *, shortest: int) -> None:
    begins = [shortest, *(edge + 1 for edge in edges[:-1])]
    names = [f"{a:,}–{b:,}" if a < b else f"{b:,}" for a, b in zip(begins, edges, strict=True)]
    shown = range(0, len(edges), -(-len(edges) // _MAX_NUMBERED_BUCKETS))
    turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    is_crowded = len(edges) > 9 or max(map(len, names)) > 9
    axes.set_xticks(shown, [names[place] for place in shown], **(turned if is_crowded else {}))
    # A few bars alone would fill the whole width.
    spare = max(0, 4 - len(edges)) / 2
    axes.set_xlim(-0.6 - spare, len(edges) - 0.4 + spare)
    axes.set_xlabel("tokens in the text")


def _draw_orders(axes: Axes, padding: Mapping[str, float]) -> None:
    shares = [float(padding[key]) for key in _ORDERS]
    highest = max(shares)
    axes.barh(list(_ORDERS.values()), shares, color=[MUTED, BLUE, GREEN], height=0.6, alpha=0.75)
    for place, share in enumerate(shares):
        axes.text(
            share + highest * 0.01, place, f"{share:.1%}", va="center", fontweight="bold", color=INK
        )
    axes.invert_yaxis()
    axes.set_xlim(0, highest * 1.1 or 1.0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.spines["left"].set_visible(False)
    tidy_axis(axes, grid="x")
    _title(axes, "Padding among all tokens, for the same rows in three orders")


def _title(axes: Axes, text: str, *, pad: float = 6) -> None:
    axes.set_title(text, loc="left", fontsize=9.5, pad=pad, color=INK)


def _compact(count: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= 10 * size:
            return f"{count / size:.1f}".removesuffix(".0") + letter
    return f"{count:,}"
