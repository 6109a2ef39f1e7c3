"""What `Retry-After` says of a full queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.drain_rate import DrainRate


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def answer(rate, clock, *, seconds, per_s):
    for _ in range(seconds * 10):
        clock.now_s += 0.1
        rate.note_answered(per_s / 10)


@pytest.mark.parametrize(
    ("per_s", "waiting", "expected"), [(50, 200, 4), (50, 10, 1), (2, 20, 10), (0.2, 512, 30)]
)
def test_the_wait_is_what_the_waiting_texts_need_at_the_present_rate(
    clock, per_s, waiting, expected
):
    rate = DrainRate(most_s=30.0, clock=clock)
    rate.note_busy()
    answer(rate, clock, seconds=12, per_s=per_s)

    assert rate.seconds_for(waiting) == pytest.approx(expected, abs=1)


def test_only_the_last_seconds_count(clock):
    rate = DrainRate(most_s=100.0, clock=clock)
    rate.note_busy()
    answer(rate, clock, seconds=20, per_s=100)
    answer(rate, clock, seconds=12, per_s=10)

    assert rate.seconds_for(200) == pytest.approx(20, abs=1)


def test_texts_that_were_refused_come_again_and_are_waited_for_as_well(clock):
    rate = DrainRate(most_s=30.0, clock=clock)
    rate.note_busy()
    answer(rate, clock, seconds=10, per_s=100)
    waits = [rate.seconds_for(200)]
    for _ in range(8):  # 300 clients, each of which comes again when it was told to
        clock.now_s += waits[-1]
        rate.note_answered(100 * waits[-1])
        rate.note_refused(300)
        waits.append(rate.seconds_for(200))

    assert waits[0] == pytest.approx(2, abs=1)
    assert waits[-1] == pytest.approx(5, abs=1)


def test_twice_the_load_that_can_be_answered_is_told_the_longest_wait(clock):
    rate = DrainRate(most_s=30.0, clock=clock)
    rate.note_busy()
    for _ in range(600):
        clock.now_s += 0.1
        rate.note_answered(10)
        rate.note_refused(11)
        wait_s = rate.seconds_for(200)

    assert wait_s == 30


def test_idle_time_does_not_make_the_service_slow(clock):
    rate = DrainRate(most_s=30.0, clock=clock)
    rate.note_busy()
    answer(rate, clock, seconds=2, per_s=100)
    clock.now_s += 3600.0
    rate.note_busy()
    answer(rate, clock, seconds=1, per_s=100)

    assert rate.seconds_for(300) == pytest.approx(3, abs=1)


def test_while_nothing_is_answered_the_wait_grows_with_the_time(clock):
    rate = DrainRate(most_s=5.0, clock=clock)
    rate.note_busy()
    waits = []
    for _ in range(4):
        waits.append(rate.seconds_for(512))
        clock.now_s += 2.5

    assert waits == [1, 3, 5, 5]


@pytest.mark.slow
@given(
    answered=st.lists(
        st.tuples(st.floats(0, 20), st.integers(0, 10_000), st.integers(0, 10_000)), max_size=30
    ),
    waiting=st.integers(0, 10**6),
    most_s=st.floats(0.01, 600),
)
def test_the_wait_is_at_least_a_second_and_never_over_the_bound(answered, waiting, most_s):
    clock = Clock()
    rate = DrainRate(most_s=most_s, clock=clock)
    rate.note_busy()
    for pause_s, num_texts, num_refused in answered:
        clock.now_s += pause_s
        rate.note_answered(num_texts)
        rate.note_refused(num_refused)

    assert 1 <= rate.seconds_for(waiting) <= max(1.0, most_s + 1)


def test_memory_does_not_grow_with_the_texts(clock):
    rate = DrainRate(most_s=30.0, clock=clock)
    rate.note_busy()
    for _ in range(10_000):
        clock.now_s += 0.01
        rate.note_answered(1)
        rate.note_refused(1)

    assert len(rate._answered) <= 45
    assert len(rate._refused) <= 125
