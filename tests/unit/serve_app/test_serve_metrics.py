"""The table of metrics, what an ingress reports, and the page that lists it all."""

import re
from pathlib import Path

import pytest
from bundles import write_tiny_bundle

from serve_app import metrics
from serve_app.config import ServeSettings, read_ray_serve_settings
from serve_app.limits import resolve_limits
from serve_app.load_watch import QueueLoad
from serve_app.metrics import (
    ALL_METRICS,
    LATENCY_BUCKETS_S,
    REQUEST_LATENCY,
    STAGE_LATENCY,
    IngressMetrics,
    LaneMetrics,
    SettingMetrics,
)
from serve_app.request_record import RequestRecord
from serve_app.told_settings import ingress_settings, lane_settings

PAGE = Path(metrics.__file__).with_name("METRICS.md")


def test_latency_buckets_are_the_agreed_seconds():
    assert LATENCY_BUCKETS_S == (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
    assert REQUEST_LATENCY.boundaries == STAGE_LATENCY.boundaries == LATENCY_BUCKETS_S


def test_names_are_unique_prefixed_and_fit_for_prometheus():
    names = [spec.name for spec in ALL_METRICS]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"textlane_[a-z_]+", name) for name in names)


def test_every_metric_is_described_and_histograms_have_ascending_boundaries():
    for spec in ALL_METRICS:
        assert spec.description.endswith(".")
        assert (spec.kind == "histogram") == bool(spec.boundaries)
        assert list(spec.boundaries) == sorted(spec.boundaries)


def test_everything_is_told_apart_by_version_and_lane():
    of_requests = [spec for spec in ALL_METRICS if spec not in metrics.RELEASE_METRICS]

    assert all({"version", "lane"} <= set(spec.tag_keys) for spec in of_requests)


def page_row(spec):
    name = f"ray_{spec.name}" + ("_total" if spec.kind == "counter" else "")
    labels = ", ".join(spec.tag_keys)
    return f"| `{name}` | {spec.kind} | {spec.unit} | {labels} | {spec.description} |"


def test_the_page_lists_every_metric_as_it_is_and_no_other():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "| `ray_" in line]

    assert rows == [page_row(spec) for spec in ALL_METRICS]


def test_the_page_names_the_buckets_in_force():
    text = PAGE.read_text(encoding="utf-8")

    for spec in ALL_METRICS:
        if spec.kind == "histogram":
            assert ", ".join(f"{edge:g}" for edge in spec.boundaries) in " ".join(text.split())


class Recorder:
    """Stands in for a Ray metric and keeps what it is told."""

    def __init__(self, spec, told):
        self._spec = spec
        self._told = told

    def inc(self, value=1.0, tags=None):
        self.observe(value, tags)

    def set(self, value, tags):
        self.observe(value, tags)

    def observe(self, value, tags):
        assert set(tags) == set(self._spec.tag_keys)
        assert all(isinstance(tag, str) and tag for tag in tags.values())
        self._told.append((self._spec.name, value, tags))


@pytest.fixture
def told(monkeypatch):
    told = []
    for name in ("_build_counter", "_build_gauge", "_build_histogram"):
        monkeypatch.setattr(metrics, name, lambda spec: Recorder(spec, told))
    return told


def answered(**fields):
    parts = {"path": "/v1/predict", "method": "POST", "version": "v1", "status": 200}
    return RequestRecord(**{**parts, "total_ms": 40.0, **fields})


def test_an_answered_request_is_counted_and_each_stage_timed(told):
    figures = {"tokenise_ms": 1.0, "queue_ms": 20.0, "session_ms": 8.0, "num_truncated": 2}

    IngressMetrics().observe_request(answered(lane="both", **figures))

    origin = {"lane": "both", "version": "v1"}
    path = {"path": "/v1/predict"}
    assert told == [
        ("textlane_request_latency_seconds", 0.04, {**path, **origin}),
        ("textlane_requests", 1.0, {**path, "status": "200", "outcome": "ok", **origin}),
        ("textlane_stage_latency_seconds", 0.001, {"stage": "tokenise", **origin}),
        ("textlane_stage_latency_seconds", 0.02, {"stage": "queue", **origin}),
        ("textlane_stage_latency_seconds", 0.008, {"stage": "session", **origin}),
        ("textlane_truncated_texts", 2.0, origin),
    ]


def test_a_request_that_no_lane_saw_has_a_whole_time_alone(told):
    IngressMetrics().observe_request(answered(status=400, code="empty_text"))

    assert [name for name, _, _ in told] == [
        "textlane_request_latency_seconds",
        "textlane_requests",
    ]
    assert told[1][2]["outcome"] == "empty_text"
    assert told[1][2]["lane"] == "none"


def test_a_lane_tells_of_its_runs_and_of_its_queue(told):
    lane = LaneMetrics("short", version="v1")
    waiting = QueueLoad(num_texts=7, num_batches=1.0, oldest_s=0.5, busy_s=2.5, is_idle=False)
    idle = QueueLoad(num_texts=0, num_batches=0.0, oldest_s=0.0, busy_s=3.0, is_idle=True)

    lane.observe_group([3, 5])
    lane.observe_load(waiting, None)
    lane.observe_load(idle, 0.4)
    lane.observe_load(idle, None)

    assert {tuple(tags.items()) for _, _, tags in told} == {(("lane", "short"), ("version", "v1"))}
    assert [(name.removeprefix("textlane_"), value) for name, value, _ in told] == [
        ("batch_rows", 2.0),
        ("batch_longest_tokens", 5.0),
        ("rows", 2.0),
        ("real_tokens", 8.0),
        ("padded_tokens", 10.0),
        ("queued_texts", 7.0),
        ("queue_age_seconds", 0.5),
        ("session_seconds", 2.5),
        ("queued_texts", 0.0),
        ("queue_age_seconds", 0.0),
        ("session_seconds", 0.5),
        ("gpu_utilisation_ratio", 0.4),
        ("queued_texts", 0.0),
        ("queue_age_seconds", 0.0),
    ]


def test_settings_are_told_by_name_and_true_is_one(told):
    tell = SettingMetrics("none", version="v1").tell

    tell({"haproxy": True, "coalesce_ms": 2.0})

    origin = {"lane": "none", "version": "v1"}
    assert told == [
        ("textlane_setting", 1.0, {"setting": "haproxy", **origin}),
        ("textlane_setting", 2.0, {"setting": "coalesce_ms", **origin}),
    ]


def test_a_lane_tells_what_holds_now_and_an_ingress_how_ray_was_started(tmp_path, monkeypatch):
    bundle = write_tiny_bundle(tmp_path / "bundle")
    settings = ServeSettings(bundle=str(bundle.folder), window_batches=8, wait_when_idle=True)
    limits = resolve_limits(settings, bundle, cpus=2)
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    monkeypatch.setenv("RAY_SERVE_THROUGHPUT_OPTIMIZED", "0")

    lane = lane_settings(settings, limits)
    ingress = ingress_settings(settings, limits, read_ray_serve_settings())

    assert (lane["window_batches"], lane["wait_when_idle"]) == (8, True)
    assert lane["threads_per_replica"] == limits.threads_per_replica == 1
    assert lane["usable_cpus"] >= 1
    assert (ingress["haproxy"], ingress["throughput_optimized"]) == (True, False)
    assert ingress["short_max_tokens"] == limits.short_max_tokens
