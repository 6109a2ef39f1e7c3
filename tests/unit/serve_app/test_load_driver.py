"""Open and closed loop in a time of our own: when requests go out and from when they count."""

import asyncio
import itertools

import pytest
from load_server import run_in_own_time

from serve_app.load.client import NotHttpError, Reply
from serve_app.load.driver import Driver, failure_of, read_reply
from serve_app.load.texts import Outgoing

OK = b'{"label": "good", "lane": "short"}'


class FakeSender:
    """Answers each request after the next of some waits; an exception is raised at once."""

    def __init__(self, waits, *, room=None):
        self.sent_s = []
        self.most_under_way = 0
        self._waits = itertools.cycle(waits)
        self._room = asyncio.Semaphore(room) if room else None
        self._under_way = 0

    async def post(self, body, *, until_s):
        loop = asyncio.get_running_loop()
        self.sent_s.append(loop.time())
        self._under_way += 1
        self.most_under_way = max(self.most_under_way, self._under_way)
        try:
            async with asyncio.timeout_at(until_s):
                return await self._answer(next(self._waits), loop)
        finally:
            self._under_way -= 1

    async def _answer(self, wait, loop):
        if isinstance(wait, Exception):
            raise wait
        if self._room is None:
            await asyncio.sleep(wait)
        else:
            async with self._room:
                await asyncio.sleep(wait)
        return Reply(status=200, body=OK, done_s=loop.time())


def drive(waits, run, *, timeout_s=30.0, room=None):
    async def go():
        sender = FakeSender(waits, room=room)
        texts = itertools.repeat(Outgoing(text_class=0, body=b"{}"))
        driver = Driver(sender, texts, timeout_s=timeout_s)
        start_s = asyncio.get_running_loop().time()
        await run(driver)
        sent = [time - start_s for time in sender.sent_s]
        return driver, sent, sender

    return run_in_own_time(go())


def test_an_open_loop_sends_when_due_though_nothing_is_answered():
    due = [0.0, 0.5, 0.5, 1.0, 7.0]

    driver, sent, sender = drive([20.0], lambda driver: driver.run_open(due))

    assert sent == pytest.approx(due)
    assert sender.most_under_way == 5
    assert [sample.latency_s for sample in driver.samples] == pytest.approx([20.0] * 5)


def test_a_service_of_one_at_a_time_makes_all_later_answers_late():
    # Ten requests due each 100 ms, each of 300 ms work: the n-th is answered at 300 (n + 1).
    due = [n / 10 for n in range(10)]

    driver, _, _ = drive([0.3], lambda driver: driver.run_open(due), room=1)

    expected = [0.3 * (n + 1) - n / 10 for n in range(10)]
    assert [sample.latency_s for sample in driver.samples] == pytest.approx(expected)


def test_a_request_that_is_sent_late_counts_from_when_it_was_due():
    async def blocked_at_first(driver):
        # The loop itself hangs for 2 s, so the first two requests cannot be sent in time.
        await asyncio.sleep(2.0)
        await driver.run_open([0.5, 1.0, 3.0])

    driver, sent, _ = drive([0.1], blocked_at_first)

    assert sent == pytest.approx([2.0, 2.0, 3.0])
    assert [sample.latency_s for sample in driver.samples] == pytest.approx([1.6, 1.1, 0.1])
    assert [sample.begun_s - sample.due_s for sample in driver.samples] == pytest.approx(
        [1.5, 1.0, 0.0]
    )


def test_a_timeout_counts_from_when_the_request_was_due():
    async def late(driver):
        await asyncio.sleep(1.5)
        await driver.run_open([0.0, 1.0])

    driver, _, _ = drive([9.0], late, timeout_s=2.0)

    assert [sample.failure.kind for sample in driver.samples] == ["timeout", "timeout"]
    assert [sample.done_s for sample in driver.samples] == pytest.approx([2.0, 3.0])


def test_a_closed_loop_keeps_its_connections_busy_and_no_more():
    driver, sent, sender = drive(
        [1.0], lambda driver: driver.run_closed(connections=3, until_s=4.5)
    )

    assert sent == pytest.approx([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4])
    assert sender.most_under_way == 3
    assert {round(sample.latency_s, 6) for sample in driver.samples} == {1.0}


def test_a_closed_loop_does_not_spin_on_refused_connections():
    driver, sent, _ = drive(
        [ConnectionRefusedError(111, "refused")],
        lambda driver: driver.run_closed(connections=1, until_s=0.95),
    )

    assert len(sent) == 10
    assert {sample.failure.kind for sample in driver.samples} == {"connection refused"}


def test_a_run_that_is_broken_off_knows_what_is_unanswered():
    async def broken_off(driver):
        work = asyncio.create_task(driver.run_open([0.0, 1.0, 2.0, 50.0]))
        await asyncio.sleep(2.5)
        work.cancel()
        await asyncio.wait([work])

    driver, _, _ = drive([0.5, 9.0], broken_off)

    assert [sample.due_s for sample in driver.samples] == pytest.approx([0.0, 2.0])
    assert driver.unanswered_due_s == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionRefusedError(111, "x"), "connection refused"),
        (ConnectionResetError(104, "x"), "connection lost"),
        (BrokenPipeError(32, "x"), "connection lost"),
        (TimeoutError(110, "x"), "no connection: ETIMEDOUT"),
        (OSError(24, "Too many open files"), "no connection: EMFILE"),
        (NotHttpError("x"), "answer is no HTTP"),
    ],
)
def test_failures_without_an_answer_have_their_kinds(error, kind):
    assert failure_of(error).kind == kind


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (429, b'{"error": {"code": "overloaded", "message": "full"}}', "429 overloaded", "full"),
        (503, b'{"error": {"type": "NotReadyError"}}', "503 NotReadyError", ""),
        (500, b"<h1>\x1b[31m Oops\n\xff</h1>", "500", "<h1> [31m Oops �</h1>"),
        (404, b'{"error": "gone"}', "404", '{"error": "gone"}'),
        (204, b"", "204", ""),
        (200, b"hello", "answer is no JSON or empty", "hello"),
        (200, b"[]", "answer is no JSON or empty", "[]"),
        (200, b"[" * 100_000, "answer is no JSON or empty", "[" * 197 + "..."),
    ],
)
def test_failures_with_an_answer_are_counted_by_status_and_code(status, body, kind, message):
    lane, failure = read_reply(Reply(status=status, body=body, done_s=0.0))

    assert lane is None
    assert (failure.kind, failure.status, failure.message) == (kind, status, message)


@pytest.mark.parametrize(
    ("body", "lane"), [(OK, "short"), (b'{"label": "x"}', None), (b'{"lane": 5}', None)]
)
def test_an_answer_names_its_lane_or_none(body, lane):
    assert read_reply(Reply(status=200, body=body, done_s=0.0)) == (lane, None)


class RefusingSender:
    """Refuses every request with 429 and the seconds to wait."""

    async def post(self, body, *, until_s):
        await asyncio.sleep(0.1)
        now = asyncio.get_running_loop().time()
        return Reply(status=429, body=b"{}", done_s=now, retry_after_s=2.0)


@pytest.mark.parametrize(("is_impatient", "num_sent"), [(False, 3), (True, 50)])
def test_a_closed_loop_waits_as_the_service_asks_unless_it_is_impatient(is_impatient, num_sent):
    async def go():
        texts = itertools.repeat(Outgoing(text_class=0, body=b"{}"))
        driver = Driver(RefusingSender(), texts, timeout_s=30.0, is_impatient=is_impatient)
        await driver.run_closed(connections=1, until_s=5.0)
        return driver

    driver = run_in_own_time(go())

    assert len(driver.samples) == pytest.approx(num_sent, abs=1)
    assert {sample.outcome for sample in driver.samples} == {"shed"}
    assert driver.now_s < 5.2
