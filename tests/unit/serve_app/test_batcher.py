"""Laws of the queue of a lane: every text answered once, in order, whoever waits beside it."""

import asyncio
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.contract.errors import DeadlineError, InferenceError
from serve_app.batcher import Batcher
from serve_app.lane_call import LaneRow
from serve_app.window import BatchLimits

LIMITS = BatchLimits(max_batch_tokens=16, max_batch_requests=4, window_batches=2)


class FakeSession:
    """Scores a row with its first token; waits for the gate, keeps each group's lengths."""

    def __init__(self):
        self.groups = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_broken = False

    def score_group(self, rows):
        assert self.gate.wait(timeout=10)
        self.groups.append([len(row) for row in rows])
        if self.is_broken:
            raise RuntimeError("no such thing")
        return [np.array([row[0]], dtype=np.float32) for row in rows]


def row(number, length=3, *, request_id=None, deadline_s=None):
    return LaneRow(
        input_ids=np.full(length, number, dtype=np.int32),
        request_id=request_id or f"r{number}",
        deadline_s=deadline_s or time.time() + 60,
    )


def build(session, runs=None):
    return Batcher(session, limits=LIMITS, on_run=(runs if runs is not None else []).append)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(1, 20), max_size=6), max_size=6))
def test_every_text_is_answered_once_and_in_order(calls):
    session = FakeSession()

    async def go():
        batcher = build(session)
        numbers = iter(range(1, 1000))
        rows = [[row(next(numbers), length) for length in lengths] for lengths in calls]
        answers = await asyncio.gather(*(batcher.score(of_call) for of_call in rows))
        batcher.close()
        return rows, answers

    rows, answers = asyncio.run(go())

    for of_call, answered in zip(rows, answers, strict=True):
        assert [one.outcome[0] for one in answered] == [one.input_ids[0] for one in of_call]
    ran = sorted(length for group in session.groups for length in group)
    assert ran == sorted(length for of_call in calls for length in of_call)
    for group in session.groups:
        assert len(group) == 1 or len(group) * max(group) <= LIMITS.max_batch_tokens


async def behind_a_run(session, batcher):
    """Keep the session busy with one text; what comes now waits."""
    session.gate.clear()
    first = asyncio.ensure_future(batcher.score([row(99)]))
    while batcher.running_s == 0.0:
        await asyncio.sleep(0.001)
    return first


def test_what_arrives_during_a_run_shares_the_next_one():
    session = FakeSession()

    async def go():
        batcher = build(session)
        first = await behind_a_run(session, batcher)
        others = [asyncio.ensure_future(batcher.score([row(n)])) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        assert batcher.num_waiting == 3
        session.gate.set()
        answers = await asyncio.gather(first, *others)
        assert batcher.num_waiting == 0
        return answers

    answers = asyncio.run(go())

    assert session.groups == [[3], [3, 3, 3]]
    assert answers[1][0].batch_rows == 3


def test_a_text_past_its_deadline_is_not_run():
    session = FakeSession()

    async def go():
        batcher = build(session)
        first = await behind_a_run(session, batcher)
        late = asyncio.ensure_future(batcher.score([row(1, deadline_s=time.time() - 1), row(2)]))
        await asyncio.sleep(0)
        session.gate.set()
        await first
        return await late

    answers = asyncio.run(go())

    assert isinstance(answers[0].outcome, DeadlineError)
    assert answers[1].outcome[0] == 2
    assert session.groups == [[3], [3]]


@pytest.mark.parametrize("how", ["forgotten", "cancelled"])
def test_a_text_that_nobody_waits_for_is_not_run(how):
    session = FakeSession()

    async def go():
        batcher = build(session)
        first = await behind_a_run(session, batcher)
        gone = asyncio.ensure_future(batcher.score([row(1, request_id="gone")]))
        stays = asyncio.ensure_future(batcher.score([row(2)]))
        await asyncio.sleep(0)
        if how == "forgotten":
            batcher.forget(["gone"])
        else:
            gone.cancel()
        await asyncio.sleep(0)
        session.gate.set()
        await first
        assert (await stays)[0].outcome[0] == 2
        await asyncio.gather(gone, return_exceptions=True)

    asyncio.run(go())

    assert session.groups == [[3], [3]]


def test_a_session_that_breaks_fails_its_texts_and_serves_the_next():
    session, runs = FakeSession(), []

    async def go():
        batcher = build(session, runs)
        session.is_broken = True
        broken = await batcher.score([row(1)])
        session.is_broken = False
        return broken, await batcher.score([row(2)])

    broken, whole = asyncio.run(go())

    assert isinstance(broken[0].outcome, InferenceError)
    assert whole[0].outcome[0] == 2
    assert [run.num_failed for run in runs] == [1, 0]
