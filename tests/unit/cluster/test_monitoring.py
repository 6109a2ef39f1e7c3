"""The dashboard, the rules and the alerts name metrics that exist, and do what they say."""

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from promql import named_metrics

from cluster.monitoring import dashboard
from cluster.monitoring.dashboard import DASHBOARD, ROWS, VARIABLES, build_dashboard

ROOT = Path(__file__).parents[3]
FOLDER = DASHBOARD.parent
RULES = yaml.safe_load((FOLDER / "rules.yml").read_text())
ALL_RULES = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in ALL_RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in ALL_RULES if "record" in rule}
QUERIES = [query for row in ROWS for panel in row.panels for query in panel.queries]
# What Prometheus makes itself.
PROMETHEUS_OWN = {"up"}
RAY_SOURCES = (
    "dashboard/modules/metrics/dashboards/*.py",
    "dashboard/modules/reporter/reporter_agent.py",
    "autoscaler/_private/prom_metrics.py",
    "serve/_private/*.py",
)


def ours():
    """Return the names in our own lists of metrics, as Prometheus has them."""
    serving = (ROOT / "serve_app/METRICS.md").read_text()
    rows = re.findall(r"^\| `(ray_\w+)` \| (\w+) \|", serving, flags=re.M)
    names = {name for name, kind in rows if kind != "histogram"}
    histograms = [name for name, kind in rows if kind == "histogram"]
    names |= {f"{name}{end}" for name in histograms for end in ("_bucket", "_count", "_sum")}
    training = (ROOT / "pipeline/train/README.md").read_text()
    return names | {f"ray_{name}" for name in re.findall(r"\| `(textlane_train_\w+)` \|", training)}


@pytest.fixture(scope="module")
def ray_text():
    folder = Path(find_spec("ray").origin).parent  # Finds it without importing it.
    files = [path for pattern in RAY_SOURCES for path in sorted(folder.glob(pattern))]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def is_of_ray(name, text):
    registered = re.sub(r"^(ray|autoscaler)_", "", name)
    without_end = re.sub(r"_(total|bucket|count|sum)$", "", registered)
    is_registered = any(f'"{short}"' in text for short in (registered, without_end))
    return is_registered or re.search(rf"\b{name}\b", text) is not None


def test_metrics_are_found_in_an_expression():
    expr = (
        'sum by (a) (rate(b_total{c="d"}[5m])) / on (x) e:f:g > 0.5 and absent(up{job="ray"} == 1)'
    )

    assert named_metrics(expr) == {"b_total", "e:f:g", "up"}


@pytest.mark.parametrize(
    "expr", [query.expr for query in QUERIES] + [rule["expr"] for rule in ALL_RULES]
)
def test_every_metric_that_is_asked_for_exists(expr, ray_text):
    known = ours() | RECORDED | PROMETHEUS_OWN

    unknown = {
        name
        for name in named_metrics(expr) - known
        if name.startswith("ray_textlane_") or not is_of_ray(name, ray_text)
    }

    assert named_metrics(expr)
    assert unknown == set()


def test_a_metric_that_ray_does_not_have_is_noticed(ray_text):
    assert is_of_ray("ray_serve_deployment_status", ray_text)
    assert not is_of_ray("ray_serve_deployment_mood", ray_text)


def test_every_metric_of_serving_is_read_by_a_rule_or_a_panel():
    asked = [query.expr for query in QUERIES] + [rule["expr"] for rule in ALL_RULES]
    read = set().union(*(named_metrics(expr) for expr in asked))
    serving = {name for name in ours() if not name.startswith("ray_textlane_train_")}
    # A histogram is read by one of its series.
    unread = {
        name
        for name in serving - read
        if not re.search(r"_(bucket|count|sum)$", name)
        or not {re.sub(r"_(bucket|count|sum)$", end, name) for end in ("_bucket", "_count")} & read
    }

    assert unread == set()


def test_the_picked_labels_exist_on_their_metric():
    serving = (ROOT / "serve_app/METRICS.md").read_text()

    for label, (metric, _) in VARIABLES.items():
        if metric.startswith("ray_textlane_train_"):
            assert label == "job"
        else:
            (row,) = re.findall(rf"^\| `{metric}` .*$", serving, flags=re.M)
            assert label in row.split("|")[4]


def test_the_file_is_what_the_panels_make():
    assert json.loads(DASHBOARD.read_text()) == build_dashboard(ROWS), (
        "run: python -m cluster.monitoring.dashboard"
    )


def test_writing_the_file_anew_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(dashboard, "DASHBOARD", tmp_path / "new.json")

    assert dashboard.main() == 0

    assert (tmp_path / "new.json").read_bytes() == DASHBOARD.read_bytes()


def test_panels_have_numbers_of_their_own_and_do_not_overlap():
    panels = build_dashboard(ROWS)["panels"]

    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_panel_says_what_it_means_and_titles_are_unique_in_their_row():
    for row in ROWS:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles)
        assert all(panel.meaning.endswith(".") for panel in row.panels)


def test_every_alert_has_a_severity_and_says_what_to_do():
    for alert in ALERTS:
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["annotations"]["summary"]
        assert len(alert["annotations"]["description"]) > 40


def test_alerts_speak_of_panels_that_are_there():
    titles = {panel.title for row in ROWS for panel in row.panels}
    spoken = set()
    for alert in ALERTS:
        for plural, quoted in re.findall(
            r"[Pp]anel(s?) (\"[^\"]+\"(?: and \"[^\"]+\")?)", alert["annotations"]["description"]
        ):
            spoken |= set(re.findall(r'"([^"]+)"', quoted))
            assert bool(plural) == (" and " in quoted)

    assert spoken
    assert spoken <= titles


def test_every_alert_is_seen_firing_in_the_rules_test():
    text = (FOLDER / "rules_test.yml").read_text()

    fired = set(re.findall(r"exp_samples: \[.*alertname=\"(\w+)\"", text))
    fired |= set(re.findall(r"labels: '\{alertname=\"(\w+)\"\}', value: 1", text))

    assert fired == {alert["alert"] for alert in ALERTS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "rules.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
        ("test", "rules", "rules_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing_wrong(arguments):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")

    done = subprocess.run(
        [promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr
