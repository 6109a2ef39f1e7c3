"""Writes the Grafana dashboard from the panels: `python -m cluster.monitoring.dashboard`."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.monitoring.node_panels import NODES
from cluster.monitoring.panels import Panel, Query, Row
from cluster.monitoring.release_panels import RELEASE
from cluster.monitoring.serving_panels import LANES, REPLICAS, SERVICE
from cluster.monitoring.training_panels import TRAINING

ROWS = (SERVICE, LANES, REPLICAS, RELEASE, TRAINING, NODES)
DASHBOARD = Path(__file__).with_name("textlane_dashboard.json")
VARIABLES = {
    "lane": ("ray_textlane_requests_total", "Lane"),
    "version": ("ray_textlane_requests_total", "Version"),
    "job": ("ray_textlane_train_loss", "Training"),
}
"""Label that a person may pick → the metric whose values are offered, and the name shown."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _IN_A_LINE = 8, 8, 3
_SCHEMA_VERSION = 39
"""Grafana 10.4 and later read it; older dashboards are converted as they are loaded."""


def build_dashboard(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON model."""
    return {
        "uid": "textlane",
        "title": "textlane",
        "tags": ["ray", "textlane"],
        "timezone": "browser",
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables(VARIABLES))},
        "panels": list(_panels(rows)),
    }


def _variables(labels: Mapping[str, tuple[str, str]]) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    }
    for label, (metric, shown) in labels.items():
        values = f"label_values({metric}, {label})"
        yield {
            "name": label,
            "label": shown,
            "type": "query",
            "datasource": _DATASOURCE,
            "definition": values,
            "query": {"query": values, "refId": "StandardVariableQuery"},
            "refresh": 2,  # With each change of the time range: versions come and go.
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "sort": 1,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": _WIDTH * _IN_A_LINE, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top += 1
        for index, panel in enumerate(row.panels):
            number += 1
            line, column = divmod(index, _IN_A_LINE)
            place = {"x": column * _WIDTH, "y": top + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield {"id": number, "gridPos": place, **_time_series(panel)}
        top += -(-len(row.panels) // _IN_A_LINE) * _HEIGHT


def _time_series(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _DATASOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"fillOpacity": 10, "showPoints": "never", "spanNulls": 60_000},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [_target(query, index) for index, query in enumerate(panel.queries)],
    }


def _target(query: Query, index: int) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": _DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "range": True,
    }


def main() -> int:
    """Write the file that Grafana loads."""
    text = json.dumps(build_dashboard(ROWS), indent=1, ensure_ascii=False) + "\n"
    DASHBOARD.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
