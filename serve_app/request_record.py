"""What is known of one request: filled on its way, read by metrics and log at its end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from serve_app.lane_call import LaneAnswer

OK_CODE = "ok"
CLIENT_GONE_CODE = "client_gone"
CLIENT_GONE_STATUS = 499
"""Stands in metrics and logs where the client left before its answer (as nginx counts it)."""


@dataclass(kw_only=True, slots=True)
class RequestRecord:
    """One request; times are milliseconds, absent where the request did not come so far."""

    path: str
    method: str
    version: str = ""
    request_id: str = ""
    release_key: str | None = None
    """What keeps a client with one version while a release is under way; None: its request id."""
    started_s: float = field(default_factory=time.perf_counter)
    timeout_s: float = 30.0
    """Seconds from ``started_s`` in which the client wants its answer."""
    status: int = 500
    code: str = OK_CODE
    """``ok`` or the code of the error."""
    retry_after_s: int = 1
    """Seconds until the queue that refused it will have room."""
    failure: BaseException | None = None
    """What went wrong inside, for the log; None where the client caused it."""
    has_begun: bool = False
    """Whether the answer is on its way, so that no other can be sent."""
    has_left: bool = False
    """Whether the client closed the connection before its answer."""
    num_texts: int = 0
    num_failed: int = 0
    """Texts of a list that have an error in the place of an answer."""
    num_let_down: int = 0
    """Of them, those that were good and that the service failed."""
    num_tokens: int = 0
    num_truncated: int = 0
    lane: str = ""
    """``short``, ``long``, or ``both`` for a list that went to both."""
    tokenise_ms: float | None = None
    queue_ms: float | None = None
    """The longest of a list's texts, as the next two."""
    session_ms: float | None = None
    batch_rows: int | None = None
    total_ms: float = 0.0
    texts: Sequence[str] | None = None
    """Only where they are to be logged."""

    def elapsed_s(self) -> float:
        """Return the seconds since the request arrived."""
        return time.perf_counter() - self.started_s

    def remaining_s(self) -> float:
        """Return the seconds until nobody waits for the answer any more."""
        return self.timeout_s - self.elapsed_s()

    def add_lane_answer(self, answer: LaneAnswer) -> None:
        """Take over the lane's figures of one text."""
        self.queue_ms = max(self.queue_ms or 0.0, answer.queue_ms)
        self.session_ms = max(self.session_ms or 0.0, answer.session_ms)
        self.batch_rows = max(self.batch_rows or 0, answer.batch_rows)


class RequestObserver(Protocol):
    """Receives every request at its end."""

    def observe_request(self, record: RequestRecord) -> None:
        """Count or write down one request."""
        ...


def finish_record(record: RequestRecord, observers: Sequence[RequestObserver]) -> None:
    """Take the time and hand the record to all who wait for it."""
    record.total_ms = record.elapsed_s() * 1000.0
    for observer in observers:
        observer.observe_request(record)
