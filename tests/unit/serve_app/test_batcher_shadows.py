"""Shadows in the queue of a lane: behind every user, bounded, never in a user's way."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batcher import LIMITS, FakeSession, behind_a_run, build, row, until

from pipeline.contract.errors import DeadlineError, OverloadedError


def shadow(number, length=3, **given):
    return replace(row(number, length, **given), is_shadow=True)


def test_a_shadow_waits_until_no_user_does():
    session = FakeSession()

    async def go():
        batcher = build(session)
        first = await behind_a_run(session, batcher)
        shadows = asyncio.ensure_future(batcher.score([shadow(1, 2)]))
        await asyncio.sleep(0)
        users = asyncio.ensure_future(batcher.score([row(n, 16) for n in range(2, 6)]))
        await asyncio.sleep(0)
        session.gate.set()
        return await asyncio.gather(first, shadows, users)

    _, (answer,), _ = asyncio.run(go())

    assert session.groups == [[3], *[[16]] * 4, [2]]
    assert answer.outcome[0] == 1


def test_a_user_who_comes_during_shadows_waits_for_one_run_at_most():
    session = FakeSession()

    async def go():
        batcher = build(session)
        session.gate.clear()
        shadows = asyncio.ensure_future(batcher.score([shadow(n, 8) for n in range(1, 7)]))
        while batcher.running_s == 0.0:
            await asyncio.sleep(0.001)
        user = asyncio.ensure_future(batcher.score([row(9, 5)]))
        await asyncio.sleep(0)
        session.gate.set()
        await asyncio.gather(shadows, user)

    asyncio.run(go())

    assert session.groups == [[8, 8], [5], [8, 8], [8, 8]]


def test_no_shadow_begins_beside_a_users_run_and_a_user_need_not_wait_for_a_shadows():
    session = FakeSession()

    async def go():
        batcher = build(session, concurrent_runs=2)
        session.gate.clear()
        calls = [asyncio.ensure_future(batcher.score([row(1, 3)]))]
        await until(lambda: len(session.began) == 1)
        calls.append(asyncio.ensure_future(batcher.score([shadow(2, 2)])))
        await asyncio.sleep(0.01)
        beside = len(session.began)
        session.gate.set()
        await asyncio.gather(*calls)
        session.gate.clear()
        calls = [asyncio.ensure_future(batcher.score([shadow(3, 4)]))]
        await until(lambda: len(session.began) == 3)
        calls.append(asyncio.ensure_future(batcher.score([row(4, 5)])))
        await until(lambda: len(session.began) == 4)
        session.gate.set()
        await asyncio.gather(*calls)
        return beside

    assert asyncio.run(go()) == 1
    assert sorted(session.groups[:2]) == [[2], [3]]
    assert sorted(session.groups[2:]) == [[4], [5]]


def test_shadows_are_bounded_and_count_neither_as_waiting_nor_as_load():
    session = FakeSession()

    async def go():
        batcher = build(session)
        first = await behind_a_run(session, batcher)
        asked = [shadow(n) for n in range(LIMITS.window_rows + 2)]
        shadows = asyncio.ensure_future(batcher.score(asked))
        await asyncio.sleep(0)
        assert (batcher.batches_waiting, batcher.read_load().num_texts) == (0.0, 0)
        session.gate.set()
        await first
        return await shadows

    answers = asyncio.run(go())

    kinds = [type(one.outcome) for one in answers]
    assert kinds[-2:] == [OverloadedError, OverloadedError]
    assert OverloadedError not in kinds[:-2]


def test_a_shadow_past_its_deadline_and_one_forgotten_are_not_run():
    session = FakeSession()

    async def go():
        batcher = build(session)
        first = await behind_a_run(session, batcher)
        gone = shadow(2)
        asked = [shadow(1, timeout_s=0.0), gone, shadow(3)]
        shadows = asyncio.ensure_future(batcher.score(asked))
        await asyncio.sleep(0)
        batcher.forget([gone.key])
        session.gate.set()
        await first
        return await shadows

    late, left, ran = asyncio.run(go())

    assert isinstance(late.outcome, DeadlineError)
    assert isinstance(left.outcome, DeadlineError)
    assert ran.outcome[0] == 3
    assert session.groups == [[3], [3]]


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=30), st.integers(1, 2))
def test_every_user_is_answered_and_no_run_mixes_shadows_with_users(asked, concurrent_runs):
    session = FakeSession()

    async def go():
        batcher = build(session, concurrent_runs=concurrent_runs)
        first = await behind_a_run(session, batcher)
        make = [(shadow if is_shadow else row) for is_shadow, _ in asked]
        # Users' rows have odd lengths here, shadows' even ones.
        rows = [
            make_one(number + 1, 2 * length - (not is_shadow))
            for number, (make_one, (is_shadow, length)) in enumerate(zip(make, asked, strict=True))
        ]
        calls = [asyncio.ensure_future(batcher.score([one])) for one in rows]
        await asyncio.sleep(0)
        session.gate.set()
        await first
        return rows, [(await call)[0] for call in calls]

    rows, answers = asyncio.run(go())

    for one, answer in zip(rows, answers, strict=True):
        assert one.is_shadow or answer.outcome[0] == one.input_ids[0]
    parities = [{length % 2 for length in group} for group in session.groups[1:]]
    assert all(len(parity) == 1 for parity in parities)
    if concurrent_runs == 1:
        assert sorted(map(min, parities), reverse=True) == [min(one) for one in parities]
