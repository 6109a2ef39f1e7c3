"""A lane as the ingress sees it: texts share calls, and Ray's failures become errors of ours."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import NotReadyError, OverloadedError
from serve_app.lane_call import LaneAnswer, LaneRow, RowKey
from serve_app.lane_watch import LaneWatch

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
        self._gone: list[RowKey] = []
        self._watch = LaneWatch(self.version, on_lost=self._give_up)

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
            try:
                await self._ask(asked)
            except NotReadyError:
                # Scoring changes nothing, so rows of a lost replica may be asked of another.
                await self._ask(_still_waiting(asked))
            is_answered = True
        except BaseException as error:
            for one in _still_waiting(asked):
                one.answer.set_exception(_no_replica() if self._watch.is_lost else error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._watch.end(is_answered=is_answered)

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
        if not self._gone:
            loop = asyncio.get_running_loop()
            loop.call_later(self.coalesce_s, self._tell_gone, context=Context())
        self._gone.append(one.row.key)

    def _tell_gone(self) -> None:
        # To all replicas: a handle does not say which of them has a call.
        gone, self._gone = self._gone, []
        self._handle.broadcast("forget", gone)


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
