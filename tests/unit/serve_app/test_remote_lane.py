"""The ingress's side of a lane, with a handle of a known formula instead of Ray's."""

import asyncio
import logging
from contextvars import ContextVar
from functools import partial

import numpy as np
import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from pipeline.contract.errors import NotReadyError, OverloadedError
from serve_app import remote_lane
from serve_app.call_order import CallOrder
from serve_app.lane_call import LaneAnswer, LaneRow
from serve_app.lane_watch import LaneWatch
from serve_app.remote_lane import RemoteLane

REQUEST = ContextVar("the request whose context something runs in", default=None)


class FakeResponse:
    """Waits for the gate, then gives what it was made with; may be cancelled."""

    def __init__(self, handle, rows):
        self._future = asyncio.ensure_future(handle.answer(rows))

    def cancel(self):
        self._future.cancel()

    def __await__(self):
        return self._future.__await__()


class NeverAnswering:
    """A method of a deployment without replicas."""

    async def remote(self):
        await asyncio.sleep(60)


class FakeBroadcast:
    """Sends when its results are asked for, as Ray's does, and fails if one is not there."""

    def __init__(self, send, deaf_replicas):
        self._send, self._deaf_replicas = send, deaf_replicas

    async def results_async(self, *, timeout_s, return_exceptions):
        assert timeout_s < 5.0
        assert return_exceptions
        self._send()
        if self._deaf_replicas:
            raise TimeoutError
        return [None]


class FakeHandle:
    """Scores a row with its first token; keeps each call's rows and what was broadcast."""

    def __init__(self):
        self.calls, self.told, self.failures, self.made_in = [], [], [], []
        self.gate = asyncio.Event()
        self.gate.set()
        self.score_rows = self
        self.deaf_replicas = self.silent_calls = 0
        self.silent_texts = set()

    def remote(self, rows):
        self.calls.append([row.input_ids[0] for row in rows])
        self.made_in.append(REQUEST.get())
        return FakeResponse(self, rows)

    @property
    def version(self):
        return NeverAnswering()

    def broadcast(self, method, keys):
        return FakeBroadcast(partial(self.told.append, (method, keys)), self.deaf_replicas)

    async def answer(self, rows):
        await self.gate.wait()
        if self.silent_calls or self.silent_texts.intersection(row.input_ids[0] for row in rows):
            self.silent_calls = max(0, self.silent_calls - 1)
            await asyncio.sleep(60)
        if self.failures:
            raise self.failures.pop(0)
        return [
            LaneAnswer(outcome=row.input_ids[:1], queue_ms=0.0, session_ms=1.0, batch_rows=1)
            for row in rows
        ]


def row(number):
    return LaneRow(
        input_ids=np.full(3, number, dtype=np.int32),
        request_id="the same",
        key=number,
        timeout_s=30.0,
    )


def with_lane(scenario, *, coalesce_s=0.01):
    async def go():
        handle = FakeHandle()
        return handle, await scenario(RemoteLane(handle, coalesce_s=coalesce_s), handle)

    return asyncio.run(go())


async def score(lane, *numbers):
    answers = await asyncio.gather(
        *(lane.score(row(number)) for number in numbers), return_exceptions=True
    )
    return [one if isinstance(one, Exception) else one.outcome[0] for one in answers]


def test_the_texts_of_one_moment_go_in_one_call_and_come_back_in_order():
    handle, answers = with_lane(lambda lane, _handle: score(lane, 3, 1, 2))

    assert handle.calls == [[3, 1, 2]]
    assert answers == [3, 1, 2]


def test_what_comes_while_a_call_is_under_way_is_collected():
    async def scenario(lane, handle):
        handle.gate.clear()
        waiting = [asyncio.ensure_future(score(lane, 1))]
        await asyncio.sleep(0.005)
        for number in (2, 3):
            waiting.append(asyncio.ensure_future(score(lane, number)))
            await asyncio.sleep(0.001)
        handle.gate.set()
        return await asyncio.gather(*waiting)

    handle, answers = with_lane(scenario, coalesce_s=0.1)

    assert handle.calls == [[1], [2, 3]]
    assert answers == [[1], [2], [3]]


def test_a_call_is_never_over_its_limit():
    handle, answers = with_lane(lambda lane, _handle: score(lane, *range(1, 151)))

    assert [len(call) for call in handle.calls] == [64, 64, 22]
    assert answers == list(range(1, 151))


@pytest.mark.parametrize("lost", [ActorDiedError(), DeploymentUnavailableError(None)])
def test_the_texts_of_a_lost_replica_are_asked_once_more(lost):
    async def scenario(lane, handle):
        handle.failures = [lost]
        return await score(lane, 1, 2)

    handle, answers = with_lane(scenario)

    assert handle.calls == [[1, 2], [1, 2]]
    assert answers == [1, 2]


def test_texts_that_are_passed_over_are_asked_again_and_the_log_names_them(monkeypatch, caplog):
    monkeypatch.setattr(remote_lane, "CallOrder", partial(CallOrder, patience_s=0.02))

    async def scenario(lane, handle):
        handle.silent_calls = 1
        older = asyncio.ensure_future(score(lane, 1, 2))
        for number in range(3, 13):
            await asyncio.sleep(0.01)
            assert await asyncio.wait_for(score(lane, number), 1.0) == [number]
        return await asyncio.wait_for(older, 1.0)

    handle, answers = with_lane(scenario, coalesce_s=0.0)

    assert handle.calls.count([1, 2]) == 2
    assert answers == [1, 2]
    (line,) = [one.getMessage() for one in caplog.records if one.name == "ray.serve"]
    assert line == "a replica does not answer; another is asked for requests ['the same']"


def test_texts_that_are_passed_over_time_and_again_wait_for_their_last_call(monkeypatch):
    monkeypatch.setattr(remote_lane, "CallOrder", partial(CallOrder, patience_s=0.0))

    async def scenario(lane, handle):
        handle.silent_texts = {1}
        older = asyncio.ensure_future(score(lane, 1))
        for number in range(2, 22):
            await asyncio.sleep(0.002)
            await score(lane, number)
        handle.silent_texts = set()
        assert not older.done()
        older.cancel()
        await asyncio.gather(older, return_exceptions=True)

    handle, _ = with_lane(scenario, coalesce_s=0.0)

    assert handle.calls.count([1]) == 4


def test_two_lost_replicas_are_an_error_that_says_what_to_do():
    async def scenario(lane, handle):
        handle.failures = [ActorDiedError(), ActorDiedError()]
        return await score(lane, 1, 2)

    handle, answers = with_lane(scenario)

    assert len(handle.calls) == 2
    assert all(isinstance(error, NotReadyError) for error in answers)
    assert "Send the request again" in str(answers[0])


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (BackPressureError(1, 1), OverloadedError),
        (RayTaskError("score_rows", "trace", ValueError("x")), RayTaskError),
        (ValueError("x"), ValueError),
    ],
    ids=["full", "a fault of the lane", "a fault of ours"],
)
def test_what_no_other_replica_would_mend_is_not_asked_again(failure, expected):
    async def scenario(lane, handle):
        handle.failures = [failure]
        return await score(lane, 1, 2)

    handle, answers = with_lane(scenario)

    assert len(handle.calls) == 1
    assert all(isinstance(error, expected) for error in answers)


def test_a_call_that_nobody_waits_for_is_cancelled_and_not_asked_again():
    async def scenario(lane, handle):
        handle.gate.clear()
        waiting = asyncio.ensure_future(score(lane, 1, 2))
        await asyncio.sleep(0.005)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(0.02)
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
        return [name for name in names if name.startswith("RemoteLane")]

    handle, left = with_lane(scenario)

    assert handle.calls == [[1, 2]]
    assert handle.told == []
    assert left == []


def test_the_lane_is_told_of_the_one_that_left_and_the_others_get_their_answers():
    async def scenario(lane, handle):
        handle.gate.clear()
        leaver = asyncio.ensure_future(lane.score(row(1)))
        stays = asyncio.ensure_future(score(lane, 2))
        await asyncio.sleep(0.005)
        leaver.cancel()
        await asyncio.sleep(0.02)
        handle.gate.set()
        return await stays

    handle, answers = with_lane(scenario)

    assert answers == [2]
    ((method, keys),) = handle.told
    assert method == "forget"
    assert keys == [1]


def test_a_replica_that_cannot_be_told_of_leavers_is_logged_and_harms_no_others(caplog):
    caplog.set_level(logging.INFO, logger="ray.serve")

    async def scenario(lane, handle):
        handle.deaf_replicas = 1
        handle.gate.clear()
        leaver = asyncio.ensure_future(lane.score(row(1)))
        stays = asyncio.ensure_future(score(lane, 2))
        await asyncio.sleep(0.005)
        leaver.cancel()
        await asyncio.sleep(0.02)
        handle.gate.set()
        return await stays

    _, answers = with_lane(scenario)

    assert answers == [2]
    assert "was not told whom nobody waits for" in caplog.text


def test_a_call_belongs_to_no_request_since_ray_cancels_those_of_one_that_left():
    async def scenario(lane, _handle):
        async def ask(number):
            REQUEST.set(number)
            return await lane.score(row(number))

        await asyncio.gather(*(ask(number) for number in range(1, 101)))

    handle, _ = with_lane(scenario)

    assert handle.made_in == [None, None]


def test_a_lane_without_replicas_is_an_error_after_a_while_and_then_at_once(monkeypatch):
    monkeypatch.setattr(remote_lane, "LaneWatch", partial(LaneWatch, patience_s=0.05))

    async def scenario(lane, handle):
        handle.gate.clear()
        first = await score(lane, 1, 2)
        at_once = await asyncio.wait_for(score(lane, 3), 0.01)
        await asyncio.sleep(0)
        return [*first, *at_once]

    handle, answers = with_lane(scenario)

    assert handle.calls == [[1, 2]]
    assert [type(answer) for answer in answers] == [NotReadyError] * 3
    assert all("no model replica answers" in str(answer) for answer in answers)


def test_a_text_whose_caller_left_before_its_call_is_not_sent():
    async def scenario(lane, _handle):
        leaver = asyncio.ensure_future(lane.score(row(1)))
        await asyncio.sleep(0)
        leaver.cancel()
        return await score(lane, 2)

    handle, answers = with_lane(scenario)

    assert handle.calls == [[2]]
    assert answers == [2]
