"""matplotlib figures as SVG text, for a page that has the colours or as a file of its own."""

import io
import itertools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

# Stand-ins that no chart would use; CSS variables take their place in the SVG.
INK, MUTED, GRID, SURFACE = "#a10001", "#a10002", "#a10003", "#a10004"
BLUE, ORANGE, GREEN = "#a10005", "#a10006", "#a10007"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    SURFACE: "--card",
    BLUE: "--blue",
    ORANGE: "--orange",
    GREEN: "--green",
}
LIGHT = {
    "--ink": "#16202c",
    "--muted": "#5b6878",
    "--line": "#dfe4ea",
    "--card": "#ffffff",
    "--blue": "#2563c9",
    "--orange": "#c2570c",
    "--green": "#14804a",
}
DARK = {
    "--ink": "#e8edf3",
    "--muted": "#9aa8b8",
    "--line": "#2b3642",
    "--card": "#182029",
    "--blue": "#79aaf8",
    "--orange": "#f2a25f",
    "--green": "#5fcf95",
}
_FONTS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif'
_WIDTH_INCHES, WIDE_INCHES = 4.9, 10.1
"""Half and all of the report's width, at which the letters of both look equally large."""
_TALL_INCHES = 5.5
_STYLE: Any = {  # matplotlib types rc keys as literals; a plain dict is no such thing
    "svg.fonttype": "none",
    "svg.hashsalt": "textlane",
    "text.parse_math": False,  # A label may hold dollar signs.
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 8.5,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One finished picture."""

    name: str
    """Short unique name; every id inside the SVG begins with it."""
    title: str
    caption: str
    """What to read from the picture."""
    svg: str
    """An ``<svg>`` element; matplotlib has escaped every text in it."""
    is_wide: bool
    """Whether it needs a page's full width."""
    is_tall: bool
    """Whether two charts of usual height fit beside it."""


def draw_chart(
    name: str,
    title: str,
    draw: Callable[[Figure], str],
    *,
    width_inches: float = _WIDTH_INCHES,
    height_inches: float = 3.0,
) -> Chart:
    """Return the chart that ``draw`` puts on an empty figure; it returns the caption.

    Equal figures give equal SVG text: no date, ids from a fixed salt, and no style from the
    user's own matplotlib settings.
    """
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # The browser draws the letters with its own fonts; matplotlib only measures them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        caption = draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = _as_inline(buffer.getvalue(), name, title)
    return Chart(
        name=name,
        title=title,
        caption=caption,
        svg=svg,
        is_wide=width_inches > _WIDTH_INCHES,
        is_tall=height_inches >= _TALL_INCHES,
    )


def stand_alone_svg(chart: Chart) -> str:
    """Return a chart as the text of an SVG file, light or dark as the viewer prefers.

    The light colours stand in the file as such, because many viewers know no CSS variables.
    """
    svg, dark = chart.svg, ""
    for variable, colour in LIGHT.items():
        svg = svg.replace(f"var({variable})", colour)
        for part in ("fill", "stroke"):
            selector = f'[style*="{part}: {colour}"]'
            dark += f"{selector}{{{part}:{DARK[variable]} !important}}"
    style = (
        f"<style>text{{font-family:{_FONTS} !important}}"
        f"@media (prefers-color-scheme: dark){{{dark}}}</style>"
    )
    page = f'<rect width="100%" height="100%" style="fill: {LIGHT["--card"]}"/>'
    end = svg.index(">") + 1
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{svg[:end]}{style}{page}{svg[end:]}'


def tidy_axis(axes: Axes, *, grid: str = "y") -> None:
    """Show grid lines of one axis only (``x``, ``y`` or ``none``)."""
    axes.grid(visible=False)
    if grid != "none":
        axes.grid(visible=True, axis="x" if grid == "x" else "y")


def cut_tallest_bar(axes: Axes, counts: NDArray[np.float64], bins: NDArray[np.float64]) -> None:
    """Cut a bar that towers over all others and write its count beside it.

    Args:
        axes: where the bars are.
        counts: heights of the bars, ``float64 [bars]``.
        bins: left ends of the bars and the right end of the last, ``float64 [bars + 1]``.
    """
    # Texts cut at max_seq_len pile up in one bin, beside which all others would vanish.
    tallest = int(counts.argmax())
    others = np.delete(counts, tallest)
    if len(others) == 0 or counts[tallest] <= 3 * others.max() or not others.any():
        return
    top = float(others.max()) * 1.5
    axes.set_ylim(0, top)
    axes.text(
        float(bins[tallest]) - 0.5,
        top * 0.97,
        f"{int(counts[tallest]):,} ↑",
        ha="right" if tallest > len(others) // 2 else "left",
        va="top",
        fontweight="bold",
    )


def _as_inline(svg: str, name: str, title: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Several SVGs share one page, and ids must be unique there.
    numbers: dict[str, str] = {}
    counter = itertools.count()

    def rename(match: re.Match[str]) -> str:
        old = match.group(2)
        numbers.setdefault(old, f"{name}-{next(counter)}")
        return f"{match.group(1)}{numbers[old]}{match.group(3)}"

    svg = re.sub(r'(\bid=")([^"]+)(")', rename, svg)
    svg = re.sub(r'(url\(#)([^)"]+)(\))', rename, svg)
    svg = re.sub(r'(href="#)([^"]+)(")', rename, svg)
    for stand_in, variable in _VARIABLES.items():
        svg = svg.replace(stand_in, f"var({variable})")
    opening = re.sub(r' (width|height)="[^"]*"', "", svg[: svg.index(">")], count=2)
    return f'{opening} role="img" aria-label="{title}"{svg[svg.index(">") :]}'
