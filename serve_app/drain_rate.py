"""How fast the service answers at present, and so when a full queue will have room again."""

import math
import time
from collections import deque
from collections.abc import Callable

LEAST_WAIT_S = 1
_WINDOW_S = 10.0
"""Chosen: long enough for a few runs of the longest texts, short enough to follow a burst."""
_BIN_S = 0.25
"""Answers of so many seconds are kept as one number."""


class DrainRate:
    """Counts answered and refused texts of the last seconds; used from one event loop."""

    def __init__(self, *, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing answered.

        Args:
            most_s: the longest wait that is ever told.
            clock: monotonic seconds.
        """
        self.most_s = most_s
        self._clock = clock
        self._answered = _RecentTexts(_WINDOW_S)
        self._refused = _RecentTexts(max(most_s, LEAST_WAIT_S))
        self._busy_since_s = 0.0
        self._told_s = LEAST_WAIT_S

    def note_busy(self) -> None:
        """Say that the first text came to an empty service; idle time says nothing of its speed."""
        self._busy_since_s = self._clock()
        self._answered.clear()

    def note_answered(self, num_texts: int) -> None:
        """Count texts that the model has answered."""
        self._answered.add(num_texts, now_s=self._clock())

    def note_refused(self, num_texts: int) -> None:
        """Count texts that found no room; they are taken to come again when they were told to."""
        self._refused.add(num_texts, now_s=self._clock())

    def seconds_for(self, num_texts: int) -> int:
        """Return the whole seconds until there is room, at least 1 and at most ``most_s``.

        That is what the texts in hand need, and those that were refused within as long a wait as
        was told last, since they come again as well. Each retry costs as much as an answer, but
        for the model.

        At the rate of the last 10 s, or since the service was idle if that is less. As long as
        nothing is answered, what it has taken so far is the best guess.

        Example: 200 texts in hand, none refused, 500 answered in the last 10 s -> 4.
        """
        now = self._clock()
        answered = self._answered.count(within_s=_WINDOW_S, now_s=now)
        elapsed_s = min(_WINDOW_S, now - self._busy_since_s)
        ahead = num_texts + self._refused.count(within_s=self._told_s, now_s=now)
        needed_s = ahead * elapsed_s / answered if answered else elapsed_s
        self._told_s = max(LEAST_WAIT_S, math.ceil(min(needed_s, self.most_s)))
        return self._told_s


class _RecentTexts:
    """Counts texts of the last seconds in bins, so that memory does not grow with them."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._bins: deque[list[float]] = deque()  # [begin, texts], oldest first

    def __len__(self) -> int:
        return len(self._bins)

    def clear(self) -> None:
        self._bins.clear()

    def add(self, num_texts: int, *, now_s: float) -> None:
        if self._bins and now_s - self._bins[-1][0] < _BIN_S:
            self._bins[-1][1] += num_texts
            return
        while self._bins and now_s - self._bins[0][0] > self._longest_s:
            self._bins.popleft()
        self._bins.append([now_s, float(num_texts)])

    def count(self, *, within_s: float, now_s: float) -> float:
        return sum(count for began_s, count in self._bins if now_s - began_s < within_s)
