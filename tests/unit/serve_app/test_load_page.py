"""The page: well-formed, complete in itself, and honest in its pictures."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.load.axes import Scale, as_time, linear_ticks, log_range, log_ticks
from serve_app.load.page import build_page, split_series
from serve_app.load.pictures import Series, draw_latency
from serve_app.load.record import TIMEOUT, Failure, Sample
from serve_app.load.report import Report
from serve_app.load.summary import summarise

EVIL = '</td><script src="http://evil.example/x.js"></script>'
TIMED_OUT = Failure(kind=TIMEOUT)
BROKEN = Failure(kind=f"500 {EVIL}", status=500, message=EVIL)


def sample(due_s, latency_s, *, text_class=0, lane="short", failure=None):
    return Sample(
        due_s=due_s,
        begun_s=due_s,
        done_s=due_s + latency_s,
        text_class=text_class,
        lane=None if failure else lane,
        failure=failure,
    )


def page_of(samples, *, class_names=("5-20 words", "200-400 words"), seconds=10.0):
    summary = summarise(samples, from_s=0.0, to_s=seconds, class_names=class_names)
    report = Report(
        schema_version=1,
        url=f"http://127.0.0.1/{EVIL}",
        started_at="2026-12-02T10:00:00+00:00",
        arrivals="open loop, Poisson arrivals, 50/s",
        texts=EVIL,
        seed=0,
        timeout_s=2.0,
        warm_up_s=0.0,
        is_stopped=False,
        cpu_share=0.02,
        summary=summary,
        notes=(f"mind {EVIL}",),
    )
    return build_page(report, samples=samples, class_names=class_names)


def parse_pictures(page):
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, flags=re.S)]


MANY = [
    sample(n / 300, 0.01 + n % 7 / 100, text_class=n % 2, lane=EVIL if n % 2 else "long")
    for n in range(3000)
]
FAILED = [sample(1.0, 2.0, failure=TIMED_OUT), sample(2.0, 0.1, failure=BROKEN)]


@pytest.mark.parametrize(
    ("samples", "class_names", "num_pictures"),
    [
        (MANY + FAILED, ("5-20 words", "200-400 words"), 3),
        (MANY + FAILED, ("one",), 3),
        ([sample(0.0, 0.0)], ("one",), 3),
        (FAILED[:1], ("one",), 3),
        (FAILED[1:], ("one",), 1),
        ([], ("one",), 1),
    ],
)
def test_a_page_has_its_pictures_and_nothing_from_elsewhere(samples, class_names, num_pictures):
    page = page_of(samples, class_names=class_names)

    assert len(parse_pictures(page)) == num_pictures
    assert "<script" not in page
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?https?:""", page)
    assert not re.search(r"\bnan\b|\binf\b|\$\w", page)
    assert len(page) < 200_000


def test_a_strangers_words_are_shown_as_words():
    page = page_of(MANY + FAILED)

    assert page.count("&lt;script") >= 4
    assert ">2,000</td>" in page.replace("&gt;", ">")


def test_many_requests_are_drawn_by_few_dots_that_hold_the_slowest():
    slowest = sample(5.0, 9.0)
    series = [Series(name="a", color=0, samples=(*MANY, slowest))]

    (picture,) = parse_pictures(draw_latency(series, from_s=0.0, measured_s=10.0))

    dots = next(path.get("d") for path in picture if path.get("class") == "dots")
    heights = [float(y) for y in re.findall(r" ([\d.]+)h0", dots)]
    assert 1000 <= len(heights) <= 1500
    assert sorted(heights)[0] < sorted(heights)[1] - 50


def test_texts_of_one_kind_are_drawn_by_lane_and_timeouts_by_themselves():
    samples = [sample(0.0, 0.1), sample(1.0, 0.1, lane="long"), sample(2.0, 0.1, lane=None)]

    series = split_series([*samples, *FAILED], ("texts of the file",))

    assert [(one.name, len(one.samples)) for one in series] == [
        ("answers", 1),
        ("long lane", 1),
        ("short lane", 1),
        ("timeouts", 1),
    ]


@given(st.lists(st.floats(0.01, 1e6), min_size=1))
def test_a_log_axis_holds_its_values_and_has_ticks(values):
    low, high = log_range(values)

    assert low <= min(values)
    assert high >= max(values)
    assert 2 <= len(log_ticks(low, high)) <= 9


def test_axes_by_hand():
    assert log_range([3.0, 70.0]) == (2.0, 100.0)
    assert log_ticks(2.0, 100.0) == [2, 5, 10, 20, 50, 100]
    assert linear_ticks(47.0) == [0, 10, 20, 30, 40]
    assert linear_ticks(0.5) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert (as_time(50.0), as_time(2000.0), as_time(0.5)) == ("50 ms", "2 s", "0.5 ms")


def test_a_scale_keeps_what_is_outside_on_its_edge():
    scale = Scale(low=1.0, high=100.0, start=0.0, end=200.0, is_log=True)

    assert [scale.at(value) for value in (0.1, 1.0, 10.0, 100.0, 1e9)] == [0, 0, 100, 200, 200]
