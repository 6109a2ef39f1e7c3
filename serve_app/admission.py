"""How many texts one ingress process has in hand, and what a client is told when it is full."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.contract.errors import OverloadedError
from serve_app.drain_rate import DrainRate


class Admission:
    """Counts texts in and out, whichever version answers them; used from one event loop."""

    def __init__(self, *, most_wait_s: float) -> None:
        """Start with no text in hand; ``most_wait_s`` is the longest wait that is ever told."""
        self.num_texts = 0
        self._rate = DrainRate(most_s=most_wait_s)

    @contextmanager
    def admit(self, num_texts: int, *, most: int) -> Iterator[None]:
        """Count texts as in hand while the block runs.

        Raises:
            OverloadedError: then there would be more than ``most``.
        """
        if self.num_texts + num_texts > most:
            raise OverloadedError(
                f"{self.num_texts} texts are in hand, {num_texts} more would pass {most}",
                remedy="Send it again after the seconds in Retry-After.",
            )
        if self.num_texts == 0:
            self._rate.note_busy()
        self.num_texts += num_texts
        try:
            yield
        finally:
            self.num_texts -= num_texts

    def note_answered(self, num_texts: int) -> None:
        """Count texts that the model has answered."""
        self._rate.note_answered(num_texts)

    def refuse(self, num_texts: int) -> int:
        """Count refused texts; return after how many seconds to send them again, 1 or more."""
        wait_s = self._rate.seconds_for(self.num_texts)
        self._rate.note_refused(num_texts)
        return wait_s
