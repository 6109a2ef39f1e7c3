"""Tells once a second how a lane's queue and GPU stand, as long as there is something to tell."""

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Protocol

PERIOD_S = 1.0
"""Seconds between two reports; chosen, Prometheus asks every 10 or more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueLoad:
    """How a lane's queue and session stand."""

    num_texts: int
    """Texts that wait for their model run."""
    oldest_s: float
    """Seconds that the oldest of them has waited; 0 where none does."""
    num_batches: float
    """Full model runs' worth of them."""
    busy_s: float
    """Seconds that the session has run since its start, the present run included."""
    is_idle: bool
    """Nothing waits and nothing runs."""


class BusyShare:
    """The share of time that a session was busy since it was last asked about."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin now."""
        self._clock = clock
        self._asked_s, self._busy_s = clock(), 0.0

    def read(self, busy_s: float) -> float:
        """Return the share, 0 to 1, when it has been busy for so many seconds in all."""
        now_s = self._clock()
        busy_before_s, asked_s = self._busy_s, self._asked_s
        self._busy_s, self._asked_s = busy_s, now_s
        return min(1.0, (busy_s - busy_before_s) / max(now_s - asked_s, 1e-9))


class LoadSource(Protocol):
    """What has a queue."""

    def read_load(self) -> QueueLoad:
        """Return how it stands now."""
        ...


class LoadWatch:
    """Reports a load at once when woken and each second, until it is idle; one event loop."""

    def __init__(
        self,
        source: LoadSource,
        *,
        report: Callable[[QueueLoad, float | None], None],
        read_gpu: Callable[[], float | None] | None = None,
        period_s: float = PERIOD_S,
    ) -> None:
        """Take what to watch; nothing happens before it is woken.

        Args:
            source: has the load.
            report: is told the load and the GPU's utilisation, None where there is no figure.
            read_gpu: None where there is no GPU. With one the watch never ends, since others
                may use it while the lane is idle.
            period_s: seconds between two reports.
        """
        self._source, self._report, self._read_gpu = source, report, read_gpu
        self._period_s = period_s
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Watch, if it is not watched already: there is work."""
        if self._task is None:
            # In the context of no request: it outlives the one that woke it.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._watch(), context=Context())

    async def _watch(self) -> None:
        try:
            while True:
                gpu = None if self._read_gpu is None else await asyncio.to_thread(self._read_gpu)
                load = self._source.read_load()
                self._report(load, gpu)
                if load.is_idle and self._read_gpu is None:
                    return  # What comes from here on wakes it anew.
                await asyncio.sleep(self._period_s)
        finally:
            self._task = None
