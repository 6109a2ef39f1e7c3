"""Figures from samples, by cases that are computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.load.record import TIMEOUT, Failure, Sample
from serve_app.load.summary import percentiles_ms, summarise

FULL = Failure(kind="429 overloaded", status=429, message="full")
LATE = Failure(kind=TIMEOUT)
BROKEN = Failure(kind="500 inference", status=500, message="broken")


def sample(due_s, latency_s=0.1, *, text_class=0, lane="short", failure=None, begun_s=None):
    return Sample(
        due_s=due_s,
        begun_s=due_s if begun_s is None else begun_s,
        done_s=due_s + latency_s,
        text_class=text_class,
        lane=None if failure else lane,
        failure=failure,
    )


def summary_of(samples, *, from_s=0.0, to_s=10.0, class_names=("a", "b"), **rest):
    return summarise(samples, from_s=from_s, to_s=to_s, class_names=class_names, **rest)


def test_percentiles_of_ten_values_by_hand():
    # Nearest rank: 50 % of 10 is the 5th, 90 % the 9th, 95 % (9.5) and 99 % (9.9) the 10th.
    found = percentiles_ms([10.0, 3.0, 7.0, 1.0, 9.0, 2.0, 8.0, 4.0, 6.0, 5.0])

    assert found.model_dump() == {
        "p50": 5000.0,
        "p90": 9000.0,
        "p95": 10000.0,
        "p99": 10000.0,
        "max": 10000.0,
    }


def test_percentiles_of_two_hundred_values_by_hand():
    found = percentiles_ms([n / 1000.0 for n in range(200, 0, -1)])

    assert (found.p50, found.p90, found.p95, found.p99, found.max) == (100, 180, 190, 198, 200)


def test_percentiles_of_one_value_and_of_none():
    assert set(percentiles_ms([0.25]).model_dump().values()) == {250.0}
    assert percentiles_ms([]) is None


@given(st.lists(st.floats(0.0, 100.0), min_size=1))
def test_percentiles_are_values_that_so_many_do_not_exceed(values):
    found = percentiles_ms(values)

    rounded = [round(value * 1000.0, 3) for value in values]
    for p, value in ((50, found.p50), (90, found.p90), (95, found.p95), (99, found.p99)):
        assert value in rounded
        assert sum(other <= value for other in rounded) >= p / 100 * len(values) - 1e-9


def test_each_kind_of_text_and_each_lane_has_its_figures():
    samples = [sample(n, 0.1) for n in range(4)]
    samples += [sample(n, 2.0, text_class=1, lane="long") for n in range(4)]

    groups = {(group.by, group.name): group for group in summary_of(samples).groups}

    assert groups["all", "all"].num_due == 8
    assert groups["text", "a"].latency_ms.max == groups["lane", "short"].latency_ms.max == 100
    assert groups["text", "b"].latency_ms.p50 == groups["lane", "long"].latency_ms.p50 == 2000


def test_one_kind_of_text_is_not_told_twice():
    found = summary_of([sample(1.0)], class_names=("all of them",))

    assert [(group.by, group.name) for group in found.groups] == [("all", "all"), ("lane", "short")]


def test_the_warm_up_counts_nowhere_but_in_its_own_number():
    samples = [sample(0.5, 5.0), sample(1.9, failure=BROKEN), sample(2.0), sample(11.0)]

    found = summary_of(samples, from_s=2.0, to_s=10.0)

    assert (found.num_due, found.num_answered, found.num_failed) == (1, 1, 0)
    assert found.groups[0].latency_ms.max == 100.0
    assert (found.num_warm_up, found.num_warm_up_failed) == (2, 1)
    assert found.failures == ()


def test_a_timeout_counts_as_the_time_waited_and_other_failures_do_not_flatter():
    samples = [sample(1.0, 0.1), sample(2.0, 3.0, failure=LATE), sample(3.0, 0.001, failure=FULL)]

    whole = summary_of(samples).groups[0]

    assert (whole.num_due, whole.num_answered, whole.num_timeouts) == (3, 1, 1)
    assert (whole.latency_ms.p50, whole.latency_ms.p99) == (100.0, 3000.0)


def test_failures_are_counted_by_kind_and_429_apart():
    samples = [sample(n, failure=FULL) for n in range(3)]
    samples += [sample(4, failure=BROKEN), sample(5, failure=LATE), sample(6)]

    found = summary_of(samples, unanswered_due_s=[7.0, 99.0])

    assert (found.num_shed, found.num_failed, found.num_unanswered, found.num_due) == (3, 2, 1, 7)
    assert [(failure.kind, failure.count) for failure in found.failures] == [
        ("429 overloaded", 3),
        ("500 inference", 1),
        (TIMEOUT, 1),
    ]
    assert found.failures[0].example == "full"


def test_throughput_is_of_answers_that_came_in_the_measured_time():
    # Due in the warm-up and answered after it; due in time and answered too late.
    samples = [sample(1.0, 1.5), sample(3.0), sample(9.5, 4.0), sample(4.0, failure=BROKEN)]

    found = summary_of(samples, from_s=2.0, to_s=10.0)

    assert found.answered_per_s == pytest.approx(2 / 8)
    assert found.due_per_s == pytest.approx(3 / 8)


def test_seconds_add_up_to_the_whole():
    samples = [sample(n / 7, 0.3, failure=FULL if n % 5 == 0 else None) for n in range(60)]

    found = summary_of(samples, to_s=9.0)

    assert [second.start_s for second in found.seconds] == list(range(9))
    assert sum(second.num_due for second in found.seconds) == 60 == found.num_due
    assert sum(second.num_answered for second in found.seconds) == 48
    assert sum(second.num_shed for second in found.seconds) == 12


def test_the_load_generators_own_lateness_is_told():
    found = summary_of([sample(1.0, begun_s=1.02), sample(2.0)])

    assert found.begun_late_ms.max == pytest.approx(20.0)
