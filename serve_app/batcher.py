"""The queue of one lane replica: forms a batch when the session is free; no Ray, no HTTP."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass
from typing import Protocol

from pipeline.contract.errors import (
    DeadlineError,
    InferenceError,
    OverloadedError,
    TextlaneError,
)
from serve_app.lane_call import LaneAnswer, LaneRow, RowKey
from serve_app.load_watch import QueueLoad
from serve_app.session import Logits, Row
from serve_app.window import BatchLimits, form_window


class GroupScorer(Protocol):
    """Runs one padded batch."""

    def score_group(self, rows: Sequence[Row]) -> list[Logits | InferenceError]:
        """Return each row's logits or error, in order; called from as many threads as runs."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRun:
    """What one run of the session was."""

    lengths: Sequence[int]
    request_ids: Sequence[str]
    failures: Sequence[TextlaneError]


@dataclass(eq=False, kw_only=True, slots=True)
class _Waiting:
    row: LaneRow
    answer: "asyncio.Future[LaneAnswer]"
    arrived_s: float


class Batcher:
    """Everything that waits for one session, oldest window first; used from one event loop.

    A window is formed when a run could begin and the last window's have all begun: until then
    what arrives only waits. So a batch is as full as the load allows, nothing waits for a timer,
    and less than one window of younger texts begin before a text.

    Shadow rows wait apart, at most one window of them. They run only when no other waits, one
    batch at a time, so that a user's text finds at most the one run before it that it would
    find behind other users.
    """

    def __init__(
        self,
        session: GroupScorer,
        *,
        limits: BatchLimits,
        on_run: Callable[[GroupRun], None],
        concurrent_runs: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the session that runs the batches.

        Args:
            session: runs a batch, in threads of this batcher's own.
            limits: of batches and windows; may be replaced at any time.
            on_run: is told of each run of the session.
            concurrent_runs: batches that run at once, where there are so many.
            clock: monotonic seconds.
        """
        self.limits = limits
        self._session = session
        self._on_run = on_run
        self._clock = clock
        self._queue: deque[_Waiting] = deque()
        self._shadows: deque[_Waiting] = deque()
        self._queued_tokens = 0
        self._window: deque[list[_Waiting]] = deque()
        self._most_workers = concurrent_runs
        self._workers: set[asyncio.Task[None]] = set()
        self._runs_began_s: list[float] = []
        self._busy_since_s = self._ran_s = 0.0
        # Of its own: the session uses its own threads, and the event loop stays free.
        self._executor = ThreadPoolExecutor(concurrent_runs, thread_name_prefix="session")

    async def score(self, rows: Sequence[LaneRow]) -> list[LaneAnswer]:
        """Return what became of each row, in order; cancelling this drops them all.

        A row whose time is over before its run gets a ``DeadlineError``, one that the
        model fails on an ``InferenceError``, a shadow that finds no room an
        ``OverloadedError``; none of these harms the others.
        """
        loop, now = asyncio.get_running_loop(), self._clock()
        waiting = [_Waiting(row=row, answer=loop.create_future(), arrived_s=now) for row in rows]
        for one in waiting:
            self._line_up(one)
        if waiting:
            self._start_worker()
        try:
            return [await one.answer for one in waiting]
        finally:
            for one in waiting:
                one.answer.cancel()

    def _line_up(self, one: _Waiting) -> None:
        if not one.row.is_shadow:
            self._queue.append(one)
            self._queued_tokens += len(one.row.input_ids)
        elif len(self._shadows) < self.limits.window_rows:
            self._shadows.append(one)
        else:
            full = OverloadedError("users' texts leave no time for shadows")
            one.answer.set_result(_no_run(full, one, one.arrived_s))

    def forget(self, rows: Sequence[RowKey]) -> None:
        """Drop rows that nobody waits for, as far as they have not run yet."""
        gone = set(rows)
        for one in (*self._all_waiting(), *self._shadows):
            if one.row.key in gone and not one.answer.done():
                one.answer.set_result(_no_run(DeadlineError("the client left"), one, self._clock()))

    @property
    def batches_waiting(self) -> float:
        """Full runs' worth of users' texts that no window has taken yet."""
        return self.limits.batches_of(num_rows=len(self._queue), num_tokens=self._queued_tokens)

    @property
    def running_s(self) -> float:
        """Seconds since the oldest of the present runs began; 0 where there is none."""
        return self._clock() - self._runs_began_s[0] if self._runs_began_s else 0.0

    def read_load(self) -> QueueLoad:
        """Return how queue and session stand now; waiting shadows are no reason to scale."""
        waiting = [one for one in self._all_waiting() if not one.answer.done()]
        now = self._clock()
        running_s = now - self._busy_since_s if self._runs_began_s else 0.0
        return QueueLoad(
            num_texts=len(waiting),
            num_batches=self.limits.batches_of(
                num_rows=len(waiting), num_tokens=sum(len(one.row.input_ids) for one in waiting)
            ),
            oldest_s=max((now - one.arrived_s for one in waiting), default=0.0),
            busy_s=self._ran_s + running_s,
            is_idle=not self._workers,
        )

    def _all_waiting(self) -> list[_Waiting]:
        return [*(one for group in self._window for one in group), *self._queue]

    def _start_worker(self) -> None:
        """Have one more batch run at once, where that is allowed and one waits."""
        if len(self._workers) < self._most_workers:
            # Not in the context of the request that happens to be first: others run in it too.
            loop = asyncio.get_running_loop()
            self._workers.add(loop.create_task(self._work(), context=Context()))

    async def _work(self) -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            while group := self._next_group():
                await self._run(group)
        except Exception:
            # Only what is told of a run can raise; it must not strand the texts behind it.
            self._workers.discard(this)
            self._start_worker()
            raise
        self._workers.discard(this)

    def _next_group(self) -> list[_Waiting]:
        if not self._window and not self._take_window():
            return self._take_shadows()
        group = self._window.popleft()
        if self._window:
            self._start_worker()
        return group

    def _take_window(self) -> bool:
        # Texts whose answers nobody awaits take no room in a window.
        self._queue = deque(one for one in self._queue if not one.answer.done())
        lengths = [len(one.row.input_ids) for one in self._queue]
        groups = form_window(lengths, self.limits)
        self._window.extend([self._queue[index] for index in group] for group in groups)
        num_taken = sum(map(len, groups))
        for _ in range(num_taken):
            self._queue.popleft()
        self._queued_tokens = sum(lengths[num_taken:])
        return bool(groups)

    def _take_shadows(self) -> list[_Waiting]:
        if len(self._workers) > 1:
            return []  # A user's text runs; who runs it takes shadows afterwards.
        self._shadows = deque(one for one in self._shadows if not one.answer.done())
        groups = form_window([len(one.row.input_ids) for one in self._shadows], self.limits)
        taken = set(groups[0]) if groups else set()
        group = [one for at, one in enumerate(self._shadows) if at in taken]
        self._shadows = deque(one for at, one in enumerate(self._shadows) if at not in taken)
        return group

    async def _run(self, group: list[_Waiting]) -> None:
        began_s = self._clock()
        for one in group:
            if not one.answer.done() and one.row.timeout_s <= began_s - one.arrived_s:
                late = DeadlineError("the text waited longer than its request may take")
                one.answer.set_result(_no_run(late, one, began_s))
        group = [one for one in group if not one.answer.done()]
        if not group:
            return
        if not self._runs_began_s:
            self._busy_since_s = began_s
        self._runs_began_s.append(began_s)
        try:
            outcomes = await self._score(group)
        finally:
            self._runs_began_s.remove(began_s)
            ended_s = self._clock()
            if not self._runs_began_s:
                self._ran_s += ended_s - self._busy_since_s
        session_s = ended_s - began_s
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
                failures=[one for one in outcomes if isinstance(one, TextlaneError)],
            )
        )

    async def _score(self, group: Sequence[_Waiting]) -> Sequence[Logits | TextlaneError]:
        rows = [one.row.input_ids for one in group]
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._session.score_group, rows)
        except Exception as error:
            # No answer may be lost over it, nor those of later groups.
            failure = InferenceError("the model failed on this text")
            failure.__cause__ = error
            return [failure] * len(group)


def _no_run(error: TextlaneError, waiting: _Waiting, now_s: float) -> LaneAnswer:
    queue_ms = (now_s - waiting.arrived_s) * 1000.0
    return LaneAnswer(outcome=error, queue_ms=queue_ms, session_ms=0.0, batch_rows=0)
