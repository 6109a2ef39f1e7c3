"""The form of the dashboard's contents: rows of panels, panels of queries."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Query:
    """One PromQL expression and what its curves are called."""

    expr: str
    legend: str
    """Grafana's template: ``{{lane}}`` is the value of that label."""
    needs: str | None = None
    """What must be there for it to have data (``a GPU``); None: any cluster that works has some."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    meaning: str
    """What it shows and what to look out for; Grafana shows it on the panel's corner."""
    unit: str
    """Grafana's name of the unit: ``s``, ``percentunit``, ``bytes``, ``short``, ``reqps``."""
    queries: tuple[Query, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A heading with the panels below it."""

    title: str
    panels: tuple[Panel, ...]


def panel(title: str, unit: str, meaning: str, *queries: Query) -> Panel:
    """Return a panel, written in one line."""
    return Panel(title=title, unit=unit, meaning=meaning, queries=queries)


def query(expr: str, legend: str, *, needs: str | None = None) -> Query:
    """Return a query, written in one line."""
    return Query(expr=expr, legend=legend, needs=needs)
