"""When lanes of a version are started anew, and how often Ray Serve is asked."""

import asyncio
from dataclasses import replace

from release_office import LOGGER, FakeLanes

from serve_app.release.lane_keeper import RETRY_S, LaneKeeper, LanesState
from serve_app.release.routing import ServedVersion


def test_replicas_that_died_are_told_from_lanes_that_shrink_and_a_new_controller():
    keeper = LaneKeeper(FakeLanes(), logger=LOGGER)
    whole = LanesState(status="running", num_running=3)
    seen = [
        whole,
        replace(whole, num_running=2, num_missing=1),
        whole,
        replace(whole, num_running=2),
        replace(whole, num_running=0),
        replace(whole, num_running=2),
    ]

    deaths = [keeper.count_deaths({"a": state}, "a") for state in seen]

    assert deaths == [0, 1, 0, 0, 0, 0]
    assert keeper.count_deaths({}, "a") == 0


def test_lanes_of_the_stable_version_that_fail_are_started_again_after_a_while():
    lanes = FakeLanes()
    keeper = LaneKeeper(lanes, logger=LOGGER)
    place = ServedVersion(version="v", bundle="/b", app_name="a")

    async def go():
        for now in (0.0, 1.0, RETRY_S):
            await keeper.keep([place], now=now, may_end=False)
            lanes.states["a"] = LanesState(status="failed")

    asyncio.run(go())

    assert lanes.started == [place, place]


def test_ray_serve_is_asked_seldom_while_no_version_has_lanes_of_its_own():
    lanes = FakeLanes()
    lanes.states["left"] = LanesState(status="running", num_running=2)
    keeper = LaneKeeper(lanes, logger=LOGGER)
    place = ServedVersion(version="v", bundle="/b", app_name="a")

    async def go():
        for now in range(10):
            await keeper.keep([], now=float(now), may_end=True)
        asked = [lanes.num_reads]
        for wanted, now in ([], RETRY_S + 5.0), ([place], RETRY_S + 6.0), ([place], RETRY_S + 7.0):
            await keeper.keep(wanted, now=now, may_end=True)
            asked.append(lanes.num_reads)
        return asked

    assert asyncio.run(go()) == [2, 3, 4, 5]
    assert (lanes.ended, lanes.started) == (["left"], [place])
