"""When to ask whether machines are about to go: now and then, at the same steps on every rank."""

import time
from collections.abc import Callable

from pipeline.train.group import Group

_EVERY_S = 5.0
"""Notice is usually given 30 s to 2 min ahead, and Ray itself looks every 5 s."""


class NoticePoll:
    """Called after every step; asks about every 5 s and answers each notice once.

    Asking waits for all ranks, so they must do it at the same steps. Clocks differ between
    them; therefore each time they agree, by the slowest, on the number of steps until the next.
    """

    def __init__(
        self,
        ask: Callable[[], str | None],
        *,
        group: Group,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what gives the notice in force, the same on every rank, None for none."""
        self._ask, self._group, self._clock = ask, group, clock
        self._steps, self._left = 1, 1
        self._asked_s = clock()
        self._told: str | None = None

    def __call__(self) -> str | None:
        """Return a notice that was not told before, otherwise None."""
        self._left -= 1
        if self._left > 0:
            return None
        notice = self._ask()
        self._steps = self._left = self._choose_steps()
        if notice == self._told:
            return None
        self._told = notice
        return notice

    def _choose_steps(self) -> int:
        now_s = self._clock()
        elapsed_s = max(self._group.gather([int(1000 * (now_s - self._asked_s))])) / 1000
        self._asked_s = now_s
        wanted = int(self._steps * _EVERY_S / max(elapsed_s, 1e-3))
        # The first steps after a start are slow, later ones may be: go up by doubling only.
        return max(1, min(2 * self._steps, wanted))
