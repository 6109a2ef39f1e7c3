"""matplotlib figures as SVG text that takes its colours and font from the page around it."""

import io
import itertools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Stand-ins that no chart would use; to_svg() puts the page's CSS variables in their place.
INK, MUTED, GRID, SURFACE = "#a10001", "#a10002", "#a10003", "#a10004"
BLUE, ORANGE, GREEN = "#a10005", "#a10006", "#a10007"
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    SURFACE: "var(--card)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREEN: "var(--green)",
}
_WIDTH_INCHES = 4.9
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


def draw_chart(
    name: str,
    title: str,
    draw: Callable[[Figure], str],
    *,
    height_inches: float = 3.0,
) -> Chart:
    """Return the chart that ``draw`` puts on an empty figure; it returns the caption.

    Equal figures give equal SVG text: no date, and ids from a fixed salt.
    """
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The browser draws the letters with its own fonts; matplotlib only measures them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        caption = draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return Chart(
        name=name, title=title, caption=caption, svg=_as_inline(buffer.getvalue(), name, title)
    )


def tidy_axis(axes: Axes, *, grid: str = "y") -> None:
    """Show grid lines of one axis only (``x``, ``y`` or ``none``)."""
    axes.grid(visible=False)
    if grid != "none":
        axes.grid(visible=True, axis="x" if grid == "x" else "y")


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
        svg = svg.replace(stand_in, variable)
    opening = re.sub(r' (width|height)="[^"]*"', "", svg[: svg.index(">")], count=2)
    return f'{opening} role="img" aria-label="{title}"{svg[svg.index(">") :]}'
