"""Calls that are passed over end; those that only wait do not."""

import asyncio

from serve_app.call_order import CallOrder


class Calls:
    """Calls sent at chosen moments of a clock, each waiting until it is answered or ended."""

    def __init__(self, *, patience_s):
        self.order = CallOrder(patience_s=patience_s)
        self.ended = []

    async def send(self, name):
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(self._wait(name, answer))
        await asyncio.sleep(0.0)
        return answer, waiting

    async def send_and_end(self, name, *, is_answered):
        answer, waiting = await self.send(name)
        answer.set_result(is_answered)
        await waiting
        await asyncio.sleep(0.001)

    async def _wait(self, name, answer):
        is_answered = False
        try:
            async with asyncio.timeout(None) as turn:
                self.order.begin(turn)
                try:
                    is_answered = await answer
                finally:
                    self.order.end(turn, is_answered=is_answered)
        except TimeoutError:
            self.ended.append(name)


def run(scenario, *, patience_s=0.05):
    async def go():
        calls = Calls(patience_s=patience_s)
        await scenario(calls)
        ended = list(calls.ended)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return ended

    return asyncio.run(go())


def test_an_answer_ends_the_calls_that_are_much_older_and_no_other():
    async def scenario(calls):
        await calls.send("old")
        await calls.send("old as well")
        await asyncio.sleep(0.06)
        await calls.send("young")
        await calls.send_and_end("answered", is_answered=True)

    assert run(scenario) == ["old", "old as well"]


def test_age_alone_ends_no_call():
    async def scenario(calls):
        await calls.send("first")
        answer, waiting = await calls.send("second")
        await asyncio.sleep(0.12)
        answer.set_result(True)
        await waiting
        await asyncio.sleep(0.001)

    assert run(scenario) == []


def test_a_call_that_failed_is_no_answer():
    async def scenario(calls):
        await calls.send("old")
        await asyncio.sleep(0.06)
        await calls.send_and_end("failed", is_answered=False)

    assert run(scenario) == []


def test_two_answers_of_one_moment_end_a_call_once():
    async def scenario(calls):
        await calls.send("old")
        await asyncio.sleep(0.06)
        both = [await calls.send("answered") for _ in range(2)]
        for answer, _ in both:
            answer.set_result(True)
        await asyncio.gather(*(waiting for _, waiting in both))
        await asyncio.sleep(0.001)

    assert run(scenario) == ["old"]


def test_a_call_whose_answer_comes_at_that_moment_is_not_ended():
    async def scenario(calls):
        old, waiting_old = await calls.send("old")
        await asyncio.sleep(0.06)
        young, waiting = await calls.send("young")
        old.set_result(True)
        young.set_result(True)
        await asyncio.gather(waiting, waiting_old)
        await asyncio.sleep(0.001)

    assert run(scenario) == []
