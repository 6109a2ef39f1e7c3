"""When to ask whether workers are about to go: now and then, at the same steps on every rank."""

import time
from collections.abc import Callable

from pipeline.train.group import Group

_EVERY_S = 5.0
"""Notice is usually given 30 s to 2 min ahead, and Ray itself looks every 5 s."""
_RESIZE_NOTICE = "the training goes on with another number of workers"


class NoticePoll:
    """Called after every step; asks about every 5 s and tells each notice once.

    Asking waits for all ranks, so they must do it at the same steps. Clocks differ between
    them; therefore each time they agree, by the slowest, on the number of steps until the next.
    """

    def __init__(
        self,
        *,
        group: Group,
        ask: Callable[[], str | None] = lambda: None,
        is_resize_due: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to count the seconds.

        Args:
            group: all ranks.
            ask: gives the notice in force, the same on every rank; None for none.
            is_resize_due: whether the number of workers is about to change, known to any rank.
            clock: seconds.
        """
        self._group, self._clock = group, clock
        self._ask, self._is_resize_due = ask, is_resize_due
        self._steps, self._left = 1, 1
        self._asked_s = clock()
        self._told: str | None = None

    @property
    def has_told(self) -> bool:
        """Whether a notice has been told."""
        return self._told is not None

    def __call__(self) -> str | None:
        """Return a notice that was not told before, otherwise None."""
        self._left -= 1
        if self._left > 0:
            return None
        notice = self._ask()
        now_s = self._clock()
        elapsed_ms = int(1000 * (now_s - self._asked_s))
        of_all = self._group.gather([elapsed_ms, int(self._is_resize_due())])
        self._asked_s = now_s
        self._steps = self._left = _choose_steps(self._steps, elapsed_ms=max(of_all[::2]))
        if any(of_all[1::2]):
            notice = notice or _RESIZE_NOTICE
        if notice == self._told:
            return None
        self._told = notice
        return notice


def _choose_steps(last: int, *, elapsed_ms: int) -> int:
    wanted = int(last * 1000 * _EVERY_S / max(elapsed_ms, 1))
    # The first steps after a start are slow, later ones may be: go up by doubling only.
    return max(1, min(2 * last, wanted))
