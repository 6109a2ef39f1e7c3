"""Prometheus' text to samples, and what counters and gauges did between two of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.doctor.samples import Sample, Scrape, read_samples, write_samples
from cluster.doctor.window import Window, quantile_of
from pipeline.contract.errors import CommandError

NAME = "ray_textlane_rows_total"


def scrape(time_s, **values):
    """Return a scrape of a counter by replica."""
    samples = [
        Sample(name=NAME, labels={"replica": replica, "lane": "short"}, value=float(value))
        for replica, value in values.items()
    ]
    return Scrape(time_s=time_s, samples=tuple(samples))


def test_only_what_symptoms_look_at_is_read_with_the_labels_that_tell_series_apart():
    page = "\n".join(
        [
            "# HELP ray_textlane_rows_total Rows.",
            "# TYPE ray_textlane_rows_total counter",
            'ray_textlane_rows_total{lane="short",SessionName="s",pid=""} 7.0',
            'ray_tasks{State="RUNNING"} 3.0',
        ]
    )

    assert read_samples(page, place="here") == [
        Sample(name=NAME, labels={"lane": "short"}, value=7.0)
    ]


@pytest.mark.parametrize("page", ["", "\n\n", "<html>", "naïve \x00 text", "ray_tasks 1"])
def test_a_page_without_our_metrics_has_no_samples(page):
    assert read_samples(page, place="here") == []


@pytest.mark.parametrize(
    "line",
    [
        "ray_textlane_rows_total",
        "ray_textlane_rows_total seven",
        'ray_textlane_rows_total{lane="short" 7',
        "ray_textlane_rows_total NaN",
        "ray_textlane_rows_total +Inf",
        "ray_textlane_rows_total 1.7e308",
        "ray_textlane_batch_rows_bucket 3",
        'ray_textlane_batch_rows_bucket{le="abc"} 3',
        'ray_textlane_batch_rows_bucket{le="nan"} 3',
    ],
)
def test_a_spoilt_line_is_refused_with_its_place(line):
    with pytest.raises(CommandError, match=r"^http://x: not metrics .*--metrics"):
        read_samples(line, place="http://x")


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_label_is_written_so_that_it_is_read_again(label):
    sample = Sample(name=NAME, labels={"replica": label}, value=1.5)

    assert read_samples(write_samples([sample]), place="here") == [sample]


def test_increases_are_added_up_over_replicas_that_come_go_and_begin_anew():
    window = Window(
        scrapes=[
            scrape(0.0, old=10, again=100),
            scrape(5.0, old=15, again=4, new=3),
            scrape(10.0, again=6, new=8),
        ]
    )

    assert window.seconds == 10.0
    assert window.increase_by(NAME, "replica") == {"old": 5.0, "again": 6.0, "new": 8.0}
    assert window.increase(NAME, lane="short") == 19.0
    assert window.increase(NAME, lane="long") == 0.0
    assert window.since_start().increase(NAME) == 14.0


def test_a_gauge_that_ray_dropped_is_known_from_when_it_was_last_told():
    window = Window(scrapes=[scrape(0.0, a=3), scrape(1.0, a=9, b=1), scrape(2.0)])

    assert {s.labels["replica"]: s.value for s in window.last(NAME)} == {"a": 9.0, "b": 1.0}
    assert window.most(NAME) == 9.0
    assert window.most("ray_other") == 0.0
    assert window.last("ray_other") == []


INF = float("inf")


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({1.0: 5.0, 2.0: 10.0, INF: 10.0}, 0.75, 1.5),
        ({1.0: 5.0, 2.0: 10.0, INF: 10.0}, 0.25, 0.5),
        ({1.0: 0.0, INF: 4.0}, 0.99, 1.0),
        ({1.0: 0.0, INF: 0.0}, 0.5, None),
        ({}, 0.5, None),
    ],
)
def test_a_quantile_is_reckoned_as_prometheus_does(counts, share, expected):
    assert quantile_of(counts, share) == expected
