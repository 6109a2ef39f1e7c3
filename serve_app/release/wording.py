"""Numbers, times and foreign texts of a release as people read them."""

from datetime import UTC, datetime
from decimal import Decimal

from serve_app.release.status import CheckView

STATE_WORDS = {
    "none": "no release yet",
    "starting": "starting",
    "running": "running",
    "paused": "paused",
    "promoted": "promoted",
    "rolled_back": "rolled back",
    "aborted": "aborted",
    "failed_to_start": "failed to start",
    "superseded": "superseded",
}


def printable(text: str) -> str:
    r"""Return a text in which whatever is not a visible character is written as an escape.

    Example: an escape sequence ``ESC [ 2 J`` -> ``\x1b[2J``, a line break -> ``\n``.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def spoken(name: str) -> str:
    """Return a name as words: ``error_rate`` -> ``error rate``."""
    return printable(name.replace("_", " "))


def figure(value: float | None) -> str:
    """Return a measured value: ``None`` -> ``–``, ``0.00412345`` -> ``0.00412``."""
    if value is None:
        return "–"
    if float(value).is_integer():
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    # Decimal writes what a float's own format would give an exponent.
    return f"{Decimal(f'{value:.3g}'):f}"


def percent(share: float) -> str:
    """Return a share: ``0.25`` -> ``25 %``, ``0.00031`` -> ``0.031 %``."""
    return f"{share * 100:.3g} %" if share < 0.9995 else f"{share * 100:.0f} %"


def duration(seconds: float) -> str:
    """Return a span of time in its two largest units: ``48123`` -> ``13 h 22 min``."""
    whole = max(0, round(seconds))
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def moment(seconds: float) -> str:
    """Return a time as ``2026-12-02 09:14 UTC``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def check_title(check: CheckView) -> str:
    """Return the name of a check with its lane."""
    return spoken(check.name) + (f" · {printable(check.lane)}" if check.lane else "")


def check_figures(check: CheckView) -> str:
    """Return the values of a check, each with its threshold."""
    parts = [
        f"{spoken(name)} {figure(value)}"
        + (f" (limit {figure(check.thresholds[name])})" if name in check.thresholds else "")
        for name, value in check.values.items()
    ]
    parts += [
        f"{spoken(name)} limit {figure(limit)}"
        for name, limit in check.thresholds.items()
        if name not in check.values
    ]
    return ", ".join(parts)
