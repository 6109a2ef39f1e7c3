"""Sends requests when they are due and keeps what became of each."""

import asyncio
import errno
import json
import ssl
from collections.abc import Iterator, Sequence
from typing import Protocol

from serve_app.load.client import NotHttpError, Reply
from serve_app.load.record import (
    DISCONNECTED,
    NOT_HTTP,
    NOT_JSON,
    REFUSED,
    TIMEOUT,
    TLS_FAILED,
    Failure,
    Sample,
    printable,
)
from serve_app.load.texts import Outgoing

_PAUSE_S = 0.1
"""A connection that failed tries again after this; at once, it would do nothing else."""


class Sender(Protocol):
    """Posts one body; see ``HttpClient.post``."""

    async def post(self, body: bytes, *, until_s: float) -> Reply:
        """Return the answer."""
        ...


class Driver:
    """One run of requests; its clock is the running event loop's."""

    def __init__(
        self,
        sender: Sender,
        texts: Iterator[Outgoing],
        *,
        timeout_s: float,
        is_impatient: bool = False,
    ) -> None:
        """Begin a run now.

        Args:
            sender: posts the requests.
            texts: what to send, in order.
            timeout_s: how long after a request was due its answer is given up.
            is_impatient: let a connection of a closed loop ask again at once where the service
                asked it to wait.
        """
        self._is_impatient = is_impatient
        self.samples: list[Sample] = []
        """In the order of their ends."""
        self._sender, self._texts, self._timeout_s = sender, texts, timeout_s
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        self._under_way: dict[int, float] = {}
        self._num_begun = 0

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return self._loop.time() - self._start_s

    @property
    def unanswered_due_s(self) -> list[float]:
        """When the requests that are still under way were due."""
        return list(self._under_way.values())

    async def run_open(self, due_s: Sequence[float]) -> None:
        """Send a request at each time, whether or not earlier ones are answered; await all.

        Args:
            due_s: seconds since the run began, ascending.
        """
        async with asyncio.TaskGroup() as requests:
            for due in due_s:
                if (wait_s := due - self.now_s) > 0.0:
                    await asyncio.sleep(wait_s)
                requests.create_task(self._request(float(due)))

    async def run_closed(self, *, connections: int, until_s: float) -> None:
        """Send over so many connections, on each the next when the last was answered.

        Args:
            connections: how many requests are under way at any time.
            until_s: seconds since the run began, after which none is sent; all are awaited.
        """
        async with asyncio.TaskGroup() as workers:
            for _ in range(connections):
                workers.create_task(self._send_in_turn(until_s))

    async def _send_in_turn(self, until_s: float) -> None:
        while (now := self.now_s) < until_s:
            failure = (await self._request(now)).failure
            if failure is not None and failure.status is None:
                await asyncio.sleep(_PAUSE_S)
            elif failure is not None and failure.retry_after_s and not self._is_impatient:
                await asyncio.sleep(min(failure.retry_after_s, max(0.0, until_s - self.now_s)))

    async def _request(self, due_s: float) -> Sample:
        begun_s, outgoing = self.now_s, next(self._texts)
        number, self._num_begun = self._num_begun, self._num_begun + 1
        self._under_way[number] = due_s
        lane, failure = None, None
        try:
            reply = await self._sender.post(
                outgoing.body, until_s=self._start_s + due_s + self._timeout_s
            )
            done_s = reply.done_s - self._start_s
            lane, failure = read_reply(reply)
        except (OSError, NotHttpError) as error:
            done_s, failure = self.now_s, failure_of(error)
        sample = Sample(
            due_s=due_s,
            begun_s=begun_s,
            done_s=done_s,
            text_class=outgoing.text_class,
            lane=lane,
            failure=failure,
        )
        # Not in a `finally`: a request that is broken off by Ctrl-C stays under way.
        del self._under_way[number]
        self.samples.append(sample)
        return sample


def failure_of(error: Exception) -> Failure:
    """Return how an exception of the sender is counted."""
    message = printable(str(error))
    if isinstance(error, NotHttpError):
        return Failure(kind=NOT_HTTP, message=message)
    if isinstance(error, ssl.SSLError):
        return Failure(kind=TLS_FAILED, message=message)
    if isinstance(error, ConnectionRefusedError):
        return Failure(kind=REFUSED, message=message)
    if isinstance(error, ConnectionError):
        return Failure(kind=DISCONNECTED, message=message)
    if isinstance(error, TimeoutError) and getattr(error, "errno", None) is None:
        return Failure(kind=TIMEOUT)
    code = getattr(error, "errno", None)
    name = errno.errorcode.get(code or 0, type(error).__name__)
    return Failure(kind=f"no connection: {name}", message=message)


def read_reply(reply: Reply) -> tuple[str | None, Failure | None]:
    """Return the lane that an answer names, and why it is a failure if it is one."""
    try:
        body = json.loads(reply.body)
    except (ValueError, RecursionError):
        body = None
    fields = body if isinstance(body, dict) else {}
    if reply.status == 200:
        if not body:
            return None, Failure(kind=NOT_JSON, status=200, message=_shown(reply.body))
        lane = fields.get("lane")
        return (printable(lane, most_chars=20) if isinstance(lane, str) else None), None
    error = fields.get("error")
    if not isinstance(error, dict):
        return None, Failure(
            kind=str(reply.status),
            status=reply.status,
            message=_shown(reply.body),
            retry_after_s=reply.retry_after_s,
        )
    # Before 0.1 the service called its codes types.
    code = printable(str(error.get("code") or error.get("type") or ""), most_chars=40)
    message = printable(str(error.get("message") or ""))
    return None, Failure(
        kind=f"{reply.status} {code}".strip(),
        status=reply.status,
        message=message,
        retry_after_s=reply.retry_after_s,
    )


def _shown(body: bytes) -> str:
    return printable(body[:800].decode(errors="replace"))
