"""How many texts the service has in hand, and what a client is told when that is enough."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.contract.errors import OverloadedError
from serve_app.drain_rate import DrainRate


class Admission:
    """The door in front of the queues; used from one event loop."""

    def __init__(self, *, most_wait_s: float) -> None:
        """Start with no text in hand; ``most_wait_s`` is the longest wait that is ever told."""
        self._num_texts = 0
        self._rate = DrainRate(most_s=most_wait_s)

    @contextmanager
    def admitted(self, num_texts: int, *, most: int) -> Iterator[None]:
        """Count texts as in hand while the block runs.

        Raises:
            OverloadedError: then there would be more than ``most``.
        """
        if self._num_texts + num_texts > most:
            raise OverloadedError(
                f"{self._num_texts} texts are in hand, {num_texts} more would pass {most}",
                remedy="Send it again after the seconds in Retry-After.",
            )
        if self._num_texts == 0:
            self._rate.note_busy()
        self._num_texts += num_texts
        try:
            yield
        finally:
            self._num_texts -= num_texts

    def note_answered(self, num_texts: int) -> None:
        """Count texts that the model has answered."""
        self._rate.note_answered(num_texts)

    @property
    def wait_s(self) -> int:
        """Seconds that what is in hand needs at the present rate; at least 1, and bounded."""
        return self._rate.seconds_for(self._num_texts)
