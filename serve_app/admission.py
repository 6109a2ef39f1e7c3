"""How many texts one ingress process has in hand, whichever version answers them."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.contract.errors import OverloadedError


class Admission:
    """Counts texts in and out; used from one event loop."""

    def __init__(self) -> None:
        """Begin with nothing in hand."""
        self.num_texts = 0

    @contextmanager
    def admit(self, num_texts: int, *, most: int) -> Iterator[None]:
        """Hold the texts of a request in hand while the block runs.

        Raises:
            OverloadedError: there would be over ``most`` with them.
        """
        if self.num_texts + num_texts > most:
            raise OverloadedError(
                f"{self.num_texts} texts are in hand, {num_texts} more would pass {most}",
                remedy="Send it again after the seconds in Retry-After.",
            )
        self.num_texts += num_texts
        try:
            yield
        finally:
            self.num_texts -= num_texts
