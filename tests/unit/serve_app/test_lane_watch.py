"""A lane that nobody answers for is found lost, and found again."""

import asyncio

import pytest

from pipeline.contract.errors import NotReadyError
from serve_app.lane_watch import LaneWatch


class Probe:
    """Answers while the lane is there."""

    def __init__(self, *, is_there):
        self.is_there, self.count = is_there, 0

    async def __call__(self):
        self.count += 1
        if not self.is_there:
            await asyncio.sleep(60)


class FirstIsLost(Probe):
    """As a lane of two replicas of which the network lost one: the first probe went there."""

    def __init__(self, *, how):
        super().__init__(is_there=True)
        self._how = how

    async def __call__(self):
        self.count += 1
        if self.count == 1:
            if self._how == "raises":
                raise NotReadyError("a model replica was lost")
            await asyncio.sleep(60)


def watching(scenario, *, is_there=True, probe=None):
    async def go():
        lost = []
        nonlocal probe
        probe = probe or Probe(is_there=is_there)
        watch = LaneWatch(probe, on_lost=lambda: lost.append(True), patience_s=0.05, period_s=0.02)
        await scenario(watch, probe)
        return watch, probe, lost

    return asyncio.run(go())


@pytest.mark.slow
def test_a_lane_that_answers_is_not_asked():
    async def scenario(watch, _probe):
        for _ in range(20):
            watch.begin()
            await asyncio.sleep(0.01)
            watch.end(is_answered=True)

    watch, probe, lost = watching(scenario, is_there=True)

    assert (probe.count, watch.is_lost, lost) == (0, False, [])


@pytest.mark.slow
def test_a_lane_that_is_only_slow_is_asked_and_not_lost():
    async def scenario(watch, _probe):
        watch.begin()
        await asyncio.sleep(0.2)
        assert not watch.is_lost
        watch.end(is_answered=True)

    watch, probe, lost = watching(scenario, is_there=True)

    assert probe.count >= 1
    assert (watch.is_lost, lost) == (False, [])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raises", "waits"])
def test_a_lane_is_not_lost_while_one_of_its_replicas_answers(how):
    async def scenario(watch, probe):
        watch.begin()
        await asyncio.sleep(0.09)
        tasks = asyncio.all_tasks()
        watch.end(is_answered=True)
        await asyncio.sleep(0.06)
        assert asyncio.all_tasks() <= tasks

    watch, probe, lost = watching(scenario, probe=FirstIsLost(how=how))

    assert probe.count == 2
    assert (watch.is_lost, lost) == (False, [])


@pytest.mark.slow
def test_a_lane_without_replicas_is_lost_once_and_found_when_it_is_back():
    async def scenario(watch, probe):
        watch.begin()
        await asyncio.sleep(0.25)
        assert watch.is_lost
        watch.end(is_answered=False)
        probe.is_there = True
        await asyncio.sleep(0.2)

    watch, _, lost = watching(scenario, is_there=False)

    assert (watch.is_lost, lost) == (False, [True])


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
def test_a_lane_that_nobody_waits_for_is_not_asked(is_there):
    async def scenario(watch, _probe):
        watch.begin()
        watch.end(is_answered=True)
        await asyncio.sleep(0.15)

    _, probe, _ = watching(scenario, is_there=is_there)

    assert probe.count == 0
