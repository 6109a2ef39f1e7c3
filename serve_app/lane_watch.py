"""Notices that a lane has no replica left, where a call would only wait; no Ray."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context

PATIENCE_S = 5.0
"""Chosen: a lost replica is replaced in 4 s, and calls that wait so long are answered then."""
_PERIOD_S = 1.0


class LaneWatch:
    """Asks a lane for a sign of life when answers are overdue; used from one event loop.

    A call to a deployment without replicas waits for one, and its clients with it until their
    deadlines. A replica answers a probe at once however busy its session is. One probe proves
    nothing where it does not come back: it may have gone to a replica on a host that the network
    lost, while others answer. So another follows each second.
    """

    def __init__(
        self,
        probe: Callable[[], Awaitable[object]],
        *,
        on_lost: Callable[[], None],
        patience_s: float = PATIENCE_S,
        period_s: float = _PERIOD_S,
    ) -> None:
        """Take what asks the lane.

        Args:
            probe: returns as soon as a replica answers; raises or waits if there is none.
            on_lost: is called once when the lane is found lost.
            patience_s: how long answers may be overdue, and then how long all probes may.
            period_s: between probes.
        """
        self.is_lost = False
        self._probe, self._on_lost = probe, on_lost
        self._patience_s, self._period_s = patience_s, period_s
        self._num_waiting = 0
        self._task: asyncio.Task[None] | None = None
        self._sign_of_life_s = 0.0

    def begin(self) -> None:
        """Note that a call is made."""
        loop = asyncio.get_running_loop()
        if not self._num_waiting:
            self._sign_of_life_s = loop.time()
        self._num_waiting += 1
        if self._task is None:
            # Not in the context of the request that happens to be first.
            self._task = loop.create_task(self._watch(), context=Context())

    def end(self, *, is_answered: bool) -> None:
        """Note that a call has ended, with or without an answer of the lane."""
        self._num_waiting -= 1
        if is_answered:
            self._sign_of_life_s = asyncio.get_running_loop().time()
            self.is_lost = False

    async def _watch(self) -> None:
        try:
            while self._num_waiting or self.is_lost:
                await asyncio.sleep(self._period_s if self.is_lost else self._overdue_in_s())
                if self.is_lost or (self._num_waiting and self._overdue_in_s() <= 0.0):
                    await self._ask()
        finally:
            self._task = None

    def _overdue_in_s(self) -> float:
        passed_s = asyncio.get_running_loop().time() - self._sign_of_life_s
        return max(0.0, self._patience_s - passed_s)

    async def _ask(self) -> None:
        began_s = self._sign_of_life_s
        try:
            async with asyncio.timeout(self._patience_s):
                await self._probe_until_answered()
        except TimeoutError:
            # An answer to a call meanwhile is a sign as well.
            is_lost = self._sign_of_life_s == began_s
        else:
            is_lost = False
            self._sign_of_life_s = asyncio.get_running_loop().time()
        if is_lost and not self.is_lost:
            self.is_lost = True
            self._on_lost()
        self.is_lost = is_lost

    async def _probe_until_answered(self) -> None:
        loop = asyncio.get_running_loop()
        probes: set[asyncio.Future[object]] = set()
        try:
            while True:
                probes.add(asyncio.ensure_future(self._probe()))
                due_s = loop.time() + self._period_s
                while probes and (left_s := due_s - loop.time()) > 0.0:
                    done, probes = await asyncio.wait(
                        probes, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    # Whatever went wrong with the others, they were not answered.
                    if any(not one.cancelled() and one.exception() is None for one in done):
                        return
                await asyncio.sleep(due_s - loop.time())
        finally:
            for one in probes:
                one.cancel()
