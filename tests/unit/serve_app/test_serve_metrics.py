"""The table of metrics."""

import re

from serve_app.metrics import ALL_METRICS, LATENCY_BUCKETS_S, REQUEST_LATENCY


def test_latency_buckets_are_the_agreed_seconds():
    assert LATENCY_BUCKETS_S == (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
    assert REQUEST_LATENCY.boundaries == LATENCY_BUCKETS_S


def test_names_are_unique_prefixed_and_fit_for_prometheus():
    names = [spec.name for spec in ALL_METRICS]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"textlane_[a-z_]+", name) for name in names)


def test_every_metric_is_described_and_histograms_have_ascending_boundaries():
    for spec in ALL_METRICS:
        assert spec.description.endswith(".")
        assert (spec.kind == "histogram") == bool(spec.boundaries)
        assert list(spec.boundaries) == sorted(spec.boundaries)
