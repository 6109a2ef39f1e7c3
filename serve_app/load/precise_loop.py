"""An event loop whose timers are as exact as the system's, not to the millisecond."""

import asyncio
import select
import selectors


class PreciseSelector(selectors.EpollSelector):
    """Waits to the microsecond: ``epoll_wait`` alone rounds up to whole milliseconds.

    A millisecond late is much of the latency of a small model.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready files, after at most ``timeout`` seconds (None: however long)."""
        if timeout is not None and timeout > 0.0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0.0
        return super().select(timeout)


def new_precise_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop with exact timers."""
    return asyncio.SelectorEventLoop(PreciseSelector())
