"""Numbers and names as tables and pictures show them."""

from serve_app.load.summary import Group

COLUMNS = ("texts", "due", "answered", "P50", "P90", "P95", "P99", "max")


def as_ms(value_ms: float, *, timeout_s: float) -> str:
    """Return milliseconds; after a > if a timeout ended the waiting.

    ``12.3``, ``1,240`` and, with a timeout of 2 s, ``>2,000``.
    """
    if value_ms >= timeout_s * 1000.0:
        return f">{timeout_s * 1000.0:,.0f}"
    return f"{value_ms:,.0f}" if value_ms >= 100.0 else f"{value_ms:.1f}"


def group_name(group: Group) -> str:
    """Return what a table calls a group."""
    return f"{group.name} lane" if group.by == "lane" else group.name


def group_cells(group: Group, *, timeout_s: float) -> tuple[str, ...]:
    """Return a row of the table of latencies, one cell for each of ``COLUMNS``."""
    due = "" if group.by == "lane" else f"{group.num_due:,}"
    cells = (group_name(group), due, f"{group.num_answered:,}")
    if group.latency_ms is None:
        return (*cells, *["-"] * 5)
    values = group.latency_ms.model_dump().values()
    return (*cells, *[as_ms(value, timeout_s=timeout_s) for value in values])
