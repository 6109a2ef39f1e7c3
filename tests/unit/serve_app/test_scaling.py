"""Laws of a lane's number of replicas."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.scaling import LaneLoad, LaneScaling, ScalingRules, wanted_replicas

RULES = ScalingRules(up_delay_s=10.0, down_delay_s=60.0)
TICK_S = 1.0


def load_of(*, queued, busy, num_running=None):
    return LaneLoad(queued_batches=queued, busy_shares=busy, num_running=num_running or len(busy))


def wanted(load, num_replicas):
    return wanted_replicas(load, num_replicas=num_replicas, rules=RULES)


@given(st.lists(st.floats(2.01, 100.0), min_size=1, max_size=8))
def test_more_queued_work_than_the_target_calls_for_more_but_at_most_twice_as_many(queued):
    num = len(queued)

    assert num < wanted(load_of(queued=queued, busy=[1.0] * num), num) <= 2 * num


def test_queued_work_is_divided_among_as_many_as_keep_it_at_the_target():
    assert wanted(load_of(queued=[3.0, 3.0], busy=[1.0, 1.0]), 2) == 3


def test_no_more_are_called_for_while_some_still_start():
    assert wanted(load_of(queued=[20.0], busy=[1.0]), 2) == 2


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_those_that_remain_are_no_busier_than_the_target(busy):
    num = len(busy)

    remain = wanted(load_of(queued=[0.0] * num, busy=busy), num)

    assert 1 <= remain <= num
    assert remain == num or sum(busy) / remain <= RULES.busy_target + 1e-9


def test_none_is_superfluous_while_work_waits_or_one_has_not_reported():
    assert wanted(load_of(queued=[1.5, 0.0], busy=[0.2, 0.2]), 2) == 2
    assert wanted(load_of(queued=[0.0], busy=[0.0], num_running=2), 2) == 2
    assert wanted(load_of(queued=[], busy=[], num_running=1), 1) == 1


class Lane:
    """A simulated lane: each replica runs 10 batches a second, the rest waits."""

    def __init__(self, *, least=1, most=8):
        self.least, self.most = least, most
        self.num_replicas, self.queued, self.now_s, self.state = least, 0.0, 0.0, {}
        self.policy = LaneScaling(up_delay_s=RULES.up_delay_s, down_delay_s=RULES.down_delay_s)

    def tick(self, batches):
        """Pass a second with so many batches of work; return the number of replicas."""
        room = 10.0 * self.num_replicas * TICK_S
        done = min(room, self.queued + batches)
        self.queued += batches - done
        self.now_s += TICK_S
        names = [str(index) for index in range(self.num_replicas)]
        context = SimpleNamespace(
            target_num_replicas=self.num_replicas,
            current_num_replicas=self.num_replicas,
            capacity_adjusted_min_replicas=self.least,
            capacity_adjusted_max_replicas=self.most,
            aggregated_metrics={
                "queued_batches": dict.fromkeys(names, self.queued / len(names)),
                "busy_share": dict.fromkeys(names, done / room),
            },
            policy_state=self.state,
            current_time=self.now_s,
        )
        self.num_replicas, self.state = self.policy(context)
        return self.num_replicas


@settings(max_examples=50)
@given(st.lists(st.floats(0.0, 200.0), max_size=150), st.integers(1, 3), st.integers(3, 6))
def test_the_number_stays_within_its_limits(work, least, most):
    lane = Lane(least=least, most=most)

    assert all(least <= lane.tick(batches) <= most for batches in work)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.floats(0.0, 76.0), st.lists(st.floats(0.8, 1.2), min_size=10, max_size=40))
def test_at_steady_load_the_number_settles(mean, noise):
    lane = Lane()
    counts = [
        lane.tick(mean * noise[second % len(noise)] / (sum(noise) / len(noise)))
        for second in range(1500)
    ]

    assert len(set(counts[-500:])) == 1
    assert lane.queued <= 200.0
    ups = [late > early for early, late in pairwise(counts)]
    assert sum(ups) <= 4


@given(st.integers(1, 9))
def test_a_burst_shorter_than_the_delay_adds_none(seconds):
    lane = Lane()

    counts = [lane.tick(10.5) for _ in range(seconds)] + [lane.tick(0.0) for _ in range(5)]

    assert set(counts) == {1}


@pytest.mark.parametrize(("load", "second"), [(10.5, 15), (30.0, 11)])
def test_more_are_there_when_the_delay_has_passed(load, second):
    lane = Lane()

    counts = [lane.tick(load) for _ in range(30)]

    assert counts.index(2) + 1 == second


def test_they_go_when_nothing_was_to_do_for_the_whole_delay_and_not_before():
    lane = Lane()
    while lane.tick(15.0) < 2 or lane.queued:
        pass

    calm = [lane.tick(0.0) for _ in range(59)]
    peak = [lane.tick(15.0)]
    after = [lane.tick(0.0) for _ in range(61)]

    assert set(calm + peak + after[:60]) == {2}
    assert after[60] == 1
