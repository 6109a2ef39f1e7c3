"""The picture of multi-label answers: what was found, missed and wrongly given, by label."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.drawing import BLUE, MUTED, ORANGE, Chart, draw_chart, tidy_axis
from pipeline.evaluate.charts import shorten_label

_MAX_LABELS = 30
_NAME_CHARS = 24
_INCHES_PER_LABEL, _MIN_INCHES = 0.19, 2.7


def draw_label_errors(per_class: Sequence[Mapping[str, Any]]) -> Chart:
    """Return bars of texts found, missed and wrongly given, the labels with most errors first.

    Args:
        per_class: rows of metrics.json; 30 labels at most are drawn.
    """
    found = np.array([round(row["recall"] * row["support"]) for row in per_class])
    missed = np.array([row["support"] for row in per_class]) - found
    wrong = np.array([row["predicted"] for row in per_class]) - found
    shown = np.argsort(-(missed + wrong), kind="stable")[:_MAX_LABELS]
    names = [shorten_label(per_class[index]["label"], _NAME_CHARS) for index in shown.tolist()]
    places = np.arange(len(names))

    def draw(figure: Figure) -> str:
        axes = figure.subplots()
        start = np.zeros(len(shown))
        for counts, colour, name in (
            (found, BLUE, "found"),
            (missed, MUTED, "missed"),
            (wrong, ORANGE, "wrongly given"),
        ):
            axes.barh(
                places, counts[shown], left=start, color=colour, height=0.7, alpha=0.75, label=name
            )
            start = start + counts[shown]
        axes.set_yticks(places, names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("test texts")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines["left"].set_visible(False)
        tidy_axis(axes, grid="x")
        figure.legend(loc="outside upper left", ncols=3, frameon=False)
        left_out = len(per_class) - len(shown)
        rest = f" {left_out} labels with fewer errors are not drawn." if left_out else ""
        return f"Texts by label: found, missed, wrongly given. Most errors first.{rest}"

    height = max(_MIN_INCHES, 1.1 + _INCHES_PER_LABEL * len(names))
    return draw_chart("labels", "Right and wrong by label", draw, height_inches=height)
