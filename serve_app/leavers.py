"""Those whose callers left, told to a lane one list at a time; no Ray."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context

from serve_app.lane_call import RowKey


class Leavers:
    """Collects the keys of rows that nobody waits for; used from one event loop.

    While the lane is told of some, the next ones are collected: many that leave at one moment
    make few calls.
    """

    def __init__(self, tell: Callable[[list[RowKey]], Awaitable[object]]) -> None:
        """Take what tells the lane; what it raises is not caught."""
        self._tell = tell
        self._gone: list[RowKey] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, key: RowKey) -> None:
        """Have the lane told of one more."""
        self._gone.append(key)
        if self._task is None:
            # Not in the context of a request: Ray Serve cancels the calls of one that left.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._tell_all(), context=Context())

    async def _tell_all(self) -> None:
        try:
            while self._gone:
                gone, self._gone = self._gone, []
                await self._tell(gone)
        finally:
            self._task = None
