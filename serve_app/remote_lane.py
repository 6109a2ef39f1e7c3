"""A lane as the ingress sees it: texts share calls, and Ray's failures become errors of ours."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import NotReadyError, OverloadedError
from serve_app.call_order import CallOrder
from serve_app.lane_call import LaneAnswer, LaneRow, RowKey
from serve_app.lane_watch import LaneWatch
from serve_app.leavers import Leavers

# What is logged here stands in the replica's own file, which Ray's dashboard shows.
_logger = logging.getLogger("ray.serve")
_TELL_S = 1.0
"""Chosen: a replica answers within milliseconds, and one that is lost holds up the others."""
_MOST_PASSED_OVER = 3
"""How often texts are asked again that were passed over; chosen, twice may meet one lost host."""
_MAX_ROWS_PER_CALL = 64
"""Rows that one call carries at most; chosen, about what two full batches hold."""


@dataclass(eq=False, slots=True)
class _Asked:
    row: LaneRow
    answer: "asyncio.Future[LaneAnswer]"


class RemoteLane:
    """Sends rows to the replicas of a lane; used from one event loop.

    A row goes at once where no call is under way. Otherwise rows are collected for
    ``coalesce_s`` and go as one call, because a call through Ray Serve's handle costs more
    CPU time than a row in it (2026-12-01, 2 cores: 310 against 392 requests/s).
    """

    def __init__(self, handle: DeploymentHandle[Any], *, coalesce_s: float) -> None:
        """Take the handle of a lane deployment; ``coalesce_s`` may be replaced at any time."""
        self._handle = handle
        self.coalesce_s = coalesce_s
        self._collected: list[_Asked] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._leavers = Leavers(self._tell_gone)
        self._watch = LaneWatch(self.version, on_lost=self._give_up)
        self._order = CallOrder()

    async def score(self, row: LaneRow) -> LaneAnswer:
        """Return what became of a row; cancelling this drops it.

        Raises:
            OverloadedError: Ray Serve refused the call, its queue is full.
            NotReadyError: the replica was lost, and so was the one that was asked next, or there
                is none for several seconds already.
        """
        if self._watch.is_lost:
            raise _no_replica()
        loop = asyncio.get_running_loop()
        asked = _Asked(row, loop.create_future())
        self._collected.append(asked)
        if len(self._collected) >= _MAX_ROWS_PER_CALL:
            self._send()
        elif self._timer is None:
            # Even at once means after this turn of the loop: the texts of a list go together.
            self._timer = loop.call_later(self.coalesce_s if self._calls else 0.0, self._send)
        return await asked.answer

    async def version(self) -> str:
        """Return the version that a replica serves.

        Raises:
            NotReadyError: the replica was lost.
        """
        try:
            return str(await self._handle.version.remote())
        except (RayError, RayServeException) as error:
            raise NotReadyError("a model replica was lost") from error

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        asked, self._collected = _still_waiting(self._collected), []
        if asked:
            # In no request's context: Ray Serve cancels every call that it finds made in the
            # context of a request whose client left, and others' texts would go with it.
            call = asyncio.get_running_loop().create_task(self._call(asked), context=Context())
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def _give_up(self) -> None:
        for call in self._calls:
            call.cancel()

    async def _call(self, asked: Sequence[_Asked]) -> None:
        self._watch.begin()
        is_answered = False
        try:
            if self._watch.is_lost:  # Found so after the rows were collected.
                raise _no_replica()
            # Scoring changes nothing, so rows of a lost replica may be asked of another.
            try:
                await self._ask_in_turn(asked)
            except NotReadyError:
                await self._ask_in_turn(asked)
            is_answered = True
        except BaseException as error:
            for one in _still_waiting(asked):
                one.answer.set_exception(_no_replica() if self._watch.is_lost else error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._watch.end(is_answered=is_answered)

    async def _ask_in_turn(self, asked: Sequence[_Asked]) -> None:
        for _ in range(_MOST_PASSED_OVER):
            waiting = _still_waiting(asked)
            if not waiting or await self._is_answered_in_turn(waiting):
                return
            ids = sorted({one.row.request_id for one in waiting})
            _logger.warning("a replica does not answer; another is asked for requests %s", ids)
        await self._ask(_still_waiting(asked))

    async def _is_answered_in_turn(self, asked: Sequence[_Asked]) -> bool:
        is_answered = False
        try:
            async with asyncio.timeout(None) as turn:
                self._order.begin(turn)
                try:
                    await self._ask(asked)
                    is_answered = True
                finally:
                    self._order.end(turn, is_answered=is_answered)
        except TimeoutError:
            if not turn.expired():
                raise
        return is_answered

    async def _ask(self, asked: Sequence[_Asked]) -> None:
        if not asked:
            return
        response: Any = self._handle.score_rows.remote([one.row for one in asked])
        watches = [
            _watch(one, partial(self._see_leaver, one, asked=asked, response=response))
            for one in asked
        ]
        try:
            answers: list[LaneAnswer] = await response
        except BackPressureError as error:
            raise OverloadedError("the lane's queue is full") from error
        except asyncio.CancelledError:
            response.cancel()
            raise
        except RayTaskError:
            raise  # The lane's code is at fault; another replica would fail as well.
        except (RayError, RayServeException) as error:
            raise NotReadyError(
                "a model replica was lost while it worked", remedy="Send the request again."
            ) from error
        finally:
            for stop in watches:
                stop()
        for one, answer in zip(asked, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)

    def _see_leaver(self, one: _Asked, *, asked: Sequence[_Asked], response: Any) -> None:
        if not _still_waiting(asked):
            response.cancel()
            return
        self._leavers.add(one.row.key)

    async def _tell_gone(self, gone: list[RowKey]) -> None:
        # To all replicas: a handle does not say which of them has a call. Ray sends nothing
        # before the results are asked for.
        told = self._handle.broadcast("forget", gone)
        try:
            await told.results_async(timeout_s=_TELL_S, return_exceptions=True)
        except (TimeoutError, RayError, RayServeException) as error:
            # Then texts run for nobody there, if it runs at all.
            _logger.info("a replica was not told whom nobody waits for: %s", error)


def _no_replica() -> NotReadyError:
    return NotReadyError("no model replica answers", remedy="Send the request again later.")


def _still_waiting(asked: Sequence[_Asked]) -> list[_Asked]:
    return [one for one in asked if not one.answer.done()]


def _watch(one: _Asked, on_leave: Callable[[], None]) -> Callable[[], object]:
    """Call back when a row's caller leaves; returns what ends the watch."""

    def see(answer: "asyncio.Future[LaneAnswer]") -> None:
        if answer.cancelled():
            on_leave()

    one.answer.add_done_callback(see)
    return partial(one.answer.remove_done_callback, see)
