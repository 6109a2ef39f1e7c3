"""The picture of what was taken for what."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pipeline.contract.batching import IntArray
from pipeline.drawing import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    SURFACE,
    WIDE_INCHES,
    Chart,
    draw_chart,
    tidy_axis,
)
from pipeline.evaluate.charts import shorten_label
from pipeline.evaluate.judged import Numbers

_TITLE = "Confusion matrix"
_MAX_NUMBERED_LABELS = 12
_MAX_NARROW_LABELS = 20
_MAX_LABELS = 100
"""More would have names too small to read at the page's full width."""
_INCHES = 4.4
_SMALL_INCHES = 3.3
_INCHES_PER_LABEL, _INCHES_OF_NAMES = 0.088, 2.2
_NAME_CHARS, _WIDE_NAME_CHARS = 18, 28


def draw_confusion(confusion: IntArray, labels: Sequence[str]) -> Chart:
    """Return the confusion matrix, each row shaded by its share of the true label.

    Of more than 100 labels those with the most errors are drawn, in the order of the labels.
    """
    shown = _most_confused(confusion)
    part = confusion[np.ix_(shown, shown)]
    shares = part / np.maximum(confusion[shown].sum(axis=1, keepdims=True), 1)
    is_wide = len(shown) > _MAX_NARROW_LABELS
    max_chars = _WIDE_NAME_CHARS if is_wide else _NAME_CHARS
    names = [shorten_label(labels[index], max_chars) for index in shown.tolist()]

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        _fill_cells(axes, part, shares)
        if len(names) <= _MAX_NUMBERED_LABELS:
            _number_cells(axes, part, shares)
        _name_axes(axes, names)
        text = "Rows are the true labels. Blue is right, orange wrong; stronger is a larger share."
        if len(shown) < len(labels):
            text += f" Only the {len(shown)} of {len(labels)} labels with the most errors."
        return text

    if is_wide:
        height = _INCHES_OF_NAMES + _INCHES_PER_LABEL * len(names)
        return draw_chart("confusion", _TITLE, draw, width_inches=WIDE_INCHES, height_inches=height)
    height = _SMALL_INCHES if len(names) <= 4 else _INCHES
    return draw_chart("confusion", _TITLE, draw, height_inches=height)


def _most_confused(confusion: IntArray) -> IntArray:
    hits = np.diag(confusion)
    errors = confusion.sum(axis=0) + confusion.sum(axis=1) - 2 * hits
    worst = np.argsort(-errors, kind="stable")[:_MAX_LABELS]
    return np.asarray(np.sort(worst), dtype=np.int64)


def _fill_cells(axes: Axes, counts: IntArray, shares: Numbers) -> None:
    for row, column in np.argwhere(counts > 0).tolist():
        colour, share = BLUE if row == column else ORANGE, float(shares[row, column])
        if len(counts) > _MAX_NUMBERED_LABELS:
            # No number stands in the cell, and a small share must still be seen.
            share = share**0.5
        cell = (column - 0.48, row - 0.48)
        axes.add_patch(
            Rectangle(cell, 0.96, 0.96, color=colour, alpha=0.08 + 0.8 * share, linewidth=0)
        )


def _number_cells(axes: Axes, counts: IntArray, shares: Numbers) -> None:
    for row, column in np.ndindex(*counts.shape):
        share = float(shares[row, column])
        axes.text(
            column,
            row,
            f"{int(counts[row, column]):,}",
            ha="center",
            va="center",
            color=SURFACE if share > 0.55 else INK if counts[row, column] else MUTED,
            fontweight="bold" if row == column else "normal",
            fontsize=12 if len(counts) <= 4 else 8,
        )


def _name_axes(axes: Axes, names: Sequence[str]) -> None:
    size = len(names)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if size > 4 else {}
    if size > _MAX_NARROW_LABELS:
        turned = {"rotation": 90}
    axes.set_xticks(range(size), names, **turned)
    axes.set_yticks(range(size), names)
    axes.tick_params(length=0, labelsize=8.5 if size <= _MAX_NARROW_LABELS else 6)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.spines[:].set_visible(size > _MAX_NUMBERED_LABELS)
    tidy_axis(axes, grid="none")
