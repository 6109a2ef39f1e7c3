"""The queue of one lane replica: forms a batch when the session is free; no Ray, no HTTP."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from pipeline.contract.errors import DeadlineError, InferenceError, TextlaneError
from serve_app.lane_call import LaneAnswer, LaneRow
from serve_app.session import Logits, Row
from serve_app.window import BatchLimits, form_window

_logger = logging.getLogger(__name__)


class GroupScorer(Protocol):
    """Runs one padded batch."""

    def score_group(self, rows: Sequence[Row]) -> list[Logits | InferenceError]:
        """Return each row's logits or error, in order; called from one thread at a time."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRun:
    """What one run of the session was."""

    lengths: Sequence[int]
    request_ids: Sequence[str]
    num_failed: int
    oldest_wait_s: float
    session_s: float


@dataclass(eq=False, kw_only=True, slots=True)
class _Waiting:
    row: LaneRow
    answer: "asyncio.Future[LaneAnswer]"
    arrived_s: float


class Batcher:
    """Everything that waits for one session, oldest window first; used from one event loop.

    A window is formed when the last one has run: until then what arrives only waits. So a
    batch is as full as the load allows, nothing waits for a timer, and a text is overtaken
    by less than one window of younger ones.
    """

    def __init__(
        self,
        session: GroupScorer,
        *,
        limits: BatchLimits,
        on_run: Callable[[GroupRun], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the session that runs the batches.

        Args:
            session: runs a batch, in this batcher's own thread.
            limits: of batches and windows; may be replaced at any time.
            on_run: is told of each run of the session.
            clock: monotonic seconds.
            wall_clock: seconds since the epoch, as deadlines are given.
        """
        self.limits = limits
        self._session = session
        self._on_run = on_run
        self._clock, self._wall_clock = clock, wall_clock
        self._queue: deque[_Waiting] = deque()
        self._window: deque[list[_Waiting]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._run_began_s: float | None = None
        # One thread: the session uses its own threads, and the event loop stays free.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="session")

    async def score(self, rows: Sequence[LaneRow]) -> list[LaneAnswer]:
        """Return what became of each row, in order; cancelling this drops them all.

        A row whose deadline passes before its run gets a ``DeadlineError``, one that the
        model fails on an ``InferenceError``; neither harms the others.
        """
        loop, now = asyncio.get_running_loop(), self._clock()
        waiting = [_Waiting(row=row, answer=loop.create_future(), arrived_s=now) for row in rows]
        self._queue.extend(waiting)
        if waiting and self._worker is None:
            self._worker = loop.create_task(self._work())
        try:
            return [await one.answer for one in waiting]
        finally:
            for one in waiting:
                one.answer.cancel()

    def forget(self, request_ids: Sequence[str]) -> None:
        """Drop the rows of requests that nobody waits for, as far as they have not run yet."""
        gone = set(request_ids)
        for one in self._all_waiting():
            if one.row.request_id in gone and not one.answer.done():
                one.answer.set_result(_no_run(DeadlineError("the client left"), one, self._clock()))

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return self._worker is None

    @property
    def num_waiting(self) -> int:
        """Rows that have not been run yet."""
        return sum(not one.answer.done() for one in self._all_waiting())

    @property
    def batches_waiting(self) -> float:
        """Full runs' worth of work that waits."""
        lengths = [len(one.row.input_ids) for one in self._all_waiting() if not one.answer.done()]
        return self.limits.batches_of(num_rows=len(lengths), num_tokens=sum(lengths))

    @property
    def oldest_wait_s(self) -> float:
        """Seconds that the oldest waiting row has waited; 0 where none waits."""
        arrived = [one.arrived_s for one in self._all_waiting() if not one.answer.done()]
        return self._clock() - min(arrived) if arrived else 0.0

    @property
    def running_s(self) -> float:
        """Seconds since the session's present run began; 0 where it does nothing."""
        return 0.0 if self._run_began_s is None else self._clock() - self._run_began_s

    def close(self) -> None:
        """Let the thread end once its run is over; nothing may be scored after this."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _all_waiting(self) -> list[_Waiting]:
        return [*(one for group in self._window for one in group), *self._queue]

    async def _work(self) -> None:
        try:
            while self._take_window():
                while self._window:
                    await self._run(self._window.popleft())
        finally:
            self._worker = None

    def _take_window(self) -> bool:
        # Texts whose answers nobody awaits take no room in a window.
        self._queue = deque(one for one in self._queue if not one.answer.done())
        if not self._queue:
            return False
        lengths = [len(one.row.input_ids) for one in self._queue]
        groups = form_window(lengths, self.limits)
        self._window.extend([self._queue[index] for index in group] for group in groups)
        for _ in range(sum(map(len, groups))):
            self._queue.popleft()
        return True

    async def _run(self, group: list[_Waiting]) -> None:
        began_s, now = self._clock(), self._wall_clock()
        for one in group:
            if not one.answer.done() and one.row.deadline_s <= now:
                late = DeadlineError("the text waited longer than its request may take")
                one.answer.set_result(_no_run(late, one, began_s))
        group = [one for one in group if not one.answer.done()]
        if not group:
            return
        self._run_began_s = began_s
        try:
            outcomes = await self._score(group)
        finally:
            self._run_began_s = None
        session_s = self._clock() - began_s
        for one, outcome in zip(group, outcomes, strict=True):
            if not one.answer.done():  # Its caller may have left while it ran.
                one.answer.set_result(
                    LaneAnswer(
                        outcome=outcome,
                        queue_ms=(began_s - one.arrived_s) * 1000.0,
                        session_ms=session_s * 1000.0,
                        batch_rows=len(group),
                    )
                )
        self._on_run(
            GroupRun(
                lengths=[len(one.row.input_ids) for one in group],
                request_ids=[one.row.request_id for one in group],
                num_failed=sum(isinstance(outcome, TextlaneError) for outcome in outcomes),
                oldest_wait_s=began_s - min(one.arrived_s for one in group),
                session_s=session_s,
            )
        )

    async def _score(self, group: Sequence[_Waiting]) -> Sequence[Logits | TextlaneError]:
        rows = [one.row.input_ids for one in group]
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._session.score_group, rows)
        except Exception:
            # No answer may be lost over it, nor those of later groups.
            _logger.exception("a batch failed: %s", [one.row.request_id for one in group])
            return [InferenceError("the model failed on this text")] * len(group)


def _no_run(error: TextlaneError, waiting: _Waiting, now_s: float) -> LaneAnswer:
    queue_ms = (now_s - waiting.arrived_s) * 1000.0
    return LaneAnswer(outcome=error, queue_ms=queue_ms, session_ms=0.0, batch_rows=0)
