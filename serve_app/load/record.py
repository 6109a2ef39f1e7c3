"""What became of one request."""

from dataclasses import dataclass
from typing import Literal

TIMEOUT = "timeout"
REFUSED = "connection refused"
DISCONNECTED = "connection lost"
TLS_FAILED = "no secure connection"
NOT_HTTP = "answer is no HTTP"
NOT_JSON = "answer is no JSON or empty"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a request has no answer."""

    kind: str
    """What failures are counted by, such as ``503 not_ready`` or ``timeout``."""
    status: int | None = None
    """HTTP status, if there was one."""
    message: str = ""
    """What the service or the system said, printable, shortened."""
    retry_after_s: float = 0.0
    """Seconds that the service asked to wait; 0 where it did not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One request; times are seconds since the run began."""

    due_s: float
    """When it should have been sent."""
    begun_s: float
    """When the load generator got round to it; later than due if it was itself too slow."""
    done_s: float
    text_class: int
    lane: str | None = None
    failure: Failure | None = None

    @property
    def latency_s(self) -> float:
        """Seconds from when it was due, so that waiting to be sent counts too."""
        return self.done_s - self.due_s

    @property
    def outcome(self) -> Literal["answered", "shed", "failed"]:
        """429 is apart: the service said no on purpose and at once."""
        if self.failure is None:
            return "answered"
        return "shed" if self.failure.status == 429 else "failed"

    @property
    def is_timeout(self) -> bool:
        """Whether nobody knows how long the answer would have taken, only that it was longer."""
        return self.failure is not None and self.failure.kind == TIMEOUT


def printable(text: str, *, most_chars: int = 200) -> str:
    """Return a stranger's words fit for a terminal: one line, no control characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * most_chars])
    shown = " ".join(shown.split())
    return shown if len(shown) <= most_chars else f"{shown[: most_chars - 3]}..."
