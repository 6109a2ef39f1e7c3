"""Laws of the queue of a lane: every text answered once, in order, whoever waits beside it."""

import asyncio
import threading
from contextvars import ContextVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.contract.errors import DeadlineError, InferenceError
from serve_app.batcher import Batcher
from serve_app.lane_call import LaneRow, draw_key
from serve_app.window import BatchLimits

LIMITS = BatchLimits(max_batch_tokens=16, max_batch_requests=4, window_batches=2)


class FakeSession:
    """Scores a row with its first token; waits for the gate, keeps each group's lengths."""

    def __init__(self):
        self.groups = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_broken = False
        self.began = []

    def score_group(self, rows):
        self.began.append(rows)
        assert self.gate.wait(timeout=10)
        self.groups.append([len(row) for row in rows])
        if self.is_broken:
            raise RuntimeError("no such thing")
        return [np.array([row[0]], dtype=np.float32) for row in rows]


def row(number, length=3, *, request_id=None, timeout_s=60.0):
    return LaneRow(
        input_ids=np.full(length, number, dtype=np.int32),
        request_id=request_id or f"r{number}",
        key=draw_key(),
        timeout_s=timeout_s,
    )


def build(session, runs=None, *, concurrent_runs=1):
    on_run = (runs if runs is not None else []).append
    return Batcher(session, limits=LIMITS, on_run=on_run, concurrent_runs=concurrent_runs)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(1, 20), max_size=6), max_size=6), st.integers(1, 3))
def test_every_text_is_answered_once_and_in_order(calls, concurrent_runs):
    session = FakeSession()

    async def go():
        batcher = build(session, concurrent_runs=concurrent_runs)
        numbers = iter(range(1, 1000))
        rows = [[row(next(numbers), length) for length in lengths] for lengths in calls]
        answers = await asyncio.gather(*(batcher.score(of_call) for of_call in rows))
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
        assert batcher.batches_waiting == 0.75
        session.gate.set()
        answers = await asyncio.gather(first, *others)
        assert batcher.batches_waiting == 0.0
        return answers

    answers = asyncio.run(go())

    assert session.groups == [[3], [3, 3, 3]]
    assert answers[1][0].batch_rows == 3


def test_a_text_past_its_deadline_is_not_run():
    session = FakeSession()

    async def go():
        batcher = build(session)
        first = await behind_a_run(session, batcher)
        late = asyncio.ensure_future(batcher.score([row(1, timeout_s=0.0), row(2)]))
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
        leaver = row(1, request_id="same")
        gone = asyncio.ensure_future(batcher.score([leaver]))
        stays = asyncio.ensure_future(batcher.score([row(2, request_id="same")]))
        await asyncio.sleep(0)
        if how == "forgotten":
            batcher.forget([leaver.key])
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
    assert [[str(one.__cause__) for one in run.failures] for run in runs] == [["no such thing"], []]


def test_the_load_tells_what_waits_how_long_and_how_long_the_session_ran():
    session, now = FakeSession(), [100.0]

    async def go():
        batcher = Batcher(session, limits=LIMITS, on_run=lambda _run: None, clock=lambda: now[0])
        loads = [batcher.read_load()]
        first = await begin_run(session, batcher, now)
        others = asyncio.ensure_future(batcher.score([row(1), row(2)]))
        await asyncio.sleep(0)
        now[0] = 103.0
        loads.append(batcher.read_load())
        session.gate.set()
        await asyncio.gather(first, others)
        await asyncio.sleep(0.01)
        return [*loads, batcher.read_load()]

    idle, behind, done = asyncio.run(go())

    assert (idle.num_texts, idle.oldest_s, idle.busy_s, idle.is_idle) == (0, 0.0, 0.0, True)
    assert (behind.num_texts, behind.oldest_s, behind.busy_s) == (2, 2.0, 3.0)
    assert (behind.num_batches, behind.is_idle) == (0.5, False)
    assert (done.num_texts, done.busy_s, done.is_idle) == (0, 3.0, True)


async def begin_run(session, batcher, now):
    """Have a run begin at the clock's second and what comes next arrive a second later."""
    session.gate.clear()
    first = asyncio.ensure_future(batcher.score([row(99)]))
    while not session.began:
        await asyncio.sleep(0.001)
    now[0] += 1.0
    return first


async def until(sign):
    async with asyncio.timeout(10):
        while not sign():
            await asyncio.sleep(0.001)


def test_so_many_batches_run_at_once_and_what_comes_then_waits_for_one_to_end():
    session = FakeSession()

    async def go():
        batcher = build(session, concurrent_runs=2)
        session.gate.clear()
        calls = [asyncio.ensure_future(batcher.score([row(n, 16) for n in range(1, 4)]))]
        await until(lambda: len(session.began) == 2)
        calls.append(asyncio.ensure_future(batcher.score([row(4), row(5)])))
        await asyncio.sleep(0.01)
        began = len(session.began)
        session.gate.set()
        return began, [one for call in calls for one in await call]

    began, answers = asyncio.run(go())

    assert began == 2
    assert [one.outcome[0] for one in answers] == [1, 2, 3, 4, 5]
    assert sorted(session.groups) == [[3, 3], [16], [16], [16]]


def test_two_runs_at_once_are_one_time_of_work_and_the_older_one_tells_of_a_hang():
    session, now = FakeSession(), [100.0]

    async def go():
        batcher = Batcher(
            session,
            limits=LIMITS,
            on_run=lambda _run: None,
            concurrent_runs=2,
            clock=lambda: now[0],
        )
        first = await begin_run(session, batcher, now)
        second = asyncio.ensure_future(batcher.score([row(1)]))
        await until(lambda: len(session.began) == 2)
        now[0] = 104.0
        during = batcher.read_load().busy_s, batcher.running_s
        session.gate.set()
        await asyncio.gather(first, second)
        await asyncio.sleep(0.01)
        return during, (batcher.read_load().busy_s, batcher.running_s)

    during, after = asyncio.run(go())

    assert during == (4.0, 4.0)
    assert after == (4.0, 0.0)


def test_a_run_is_reported_in_no_request_s_context():
    session, seen = FakeSession(), []
    current = ContextVar("current", default="none")

    async def go():
        batcher = Batcher(session, limits=LIMITS, on_run=lambda _run: seen.append(current.get()))
        current.set("the first request")
        await batcher.score([row(1)])

    asyncio.run(go())

    assert seen == ["none"]


def test_what_is_told_of_a_run_cannot_strand_the_texts_behind_it(caplog):
    session = FakeSession()

    def refuse(_run):
        raise RuntimeError("metrics are full")

    async def go():
        batcher = Batcher(session, limits=LIMITS, on_run=refuse)
        first = await behind_a_run(session, batcher)
        others = asyncio.ensure_future(batcher.score([row(n) for n in range(1, 13)]))
        await asyncio.sleep(0)
        session.gate.set()
        await first
        async with asyncio.timeout(10):
            return await others

    answers = asyncio.run(go())

    assert [one.outcome[0] for one in answers] == list(range(1, 13))
