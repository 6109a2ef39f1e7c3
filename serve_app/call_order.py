"""Finds calls that a lane passes over: it has answered much younger ones; no Ray."""

import asyncio
from itertools import takewhile

PATIENCE_S = 5.0
"""Chosen: texts of one lane wait in one line, of two replicas in lines of about one length."""


class CallOrder:
    """The calls under way, each as the timeout that ends it; used from one event loop.

    A call may wait long in a full lane, so its age alone says nothing. One whose replica is on a
    host that the network lost waits for ever, while others that were sent after it are answered.
    """

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        """Take by how much a call must be older than one that is answered."""
        self._patience_s = patience_s
        self._sent_s: dict[asyncio.Timeout, float] = {}

    def begin(self, call: asyncio.Timeout) -> None:
        """Note that a call is sent."""
        self._sent_s[call] = asyncio.get_running_loop().time()

    def end(self, call: asyncio.Timeout, *, is_answered: bool) -> None:
        """Note that a call is over; an answer ends those that are too much older."""
        sent_s = self._sent_s.pop(call, None)
        if sent_s is None or not is_answered:
            return
        latest_s = sent_s - self._patience_s
        # The oldest stand first.
        passed = [one for one, _ in takewhile(lambda it: it[1] <= latest_s, self._sent_s.items())]
        for one in passed:
            del self._sent_s[one]
            one.reschedule(asyncio.get_running_loop().time())
