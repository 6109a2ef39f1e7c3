"""One log line for each request, with what it took and what became of it."""

import logging
from http import HTTPStatus
from typing import Any

from pipeline.contract.errors import ServiceError
from serve_app.request_record import RequestRecord

_FIELDS = (
    "request_id",
    "method",
    "path",
    "status",
    "code",
    "version",
    "lane",
    "num_texts",
    "num_failed",
    "num_tokens",
    "num_truncated",
    "batch_rows",
    "texts",
)
_TIMES = ("tokenise_ms", "queue_ms", "session_ms", "total_ms")


class RequestLog:
    """Writes a record as attributes of a log record, which JSON formatters put into the line."""

    def __init__(self, logger: logging.Logger) -> None:
        """Take the logger that the lines go to."""
        self._logger = logger

    def observe_request(self, record: RequestRecord) -> None:
        """Write one line: WARNING for 503 and 504, ERROR for other failures of the service."""
        level = _level_of(record.status)
        if not self._logger.isEnabledFor(level):
            return
        # A known failure is told in a line; its traceback, if any, is in the lane's log.
        is_known = isinstance(record.failure, ServiceError)
        self._logger.log(
            level,
            "request %s %s %s %d %s %.1f ms",
            record.request_id,
            record.method,
            record.path,
            record.status,
            record.code,
            record.total_ms,
            exc_info=None if is_known else record.failure,
            extra=log_fields(record),
        )


def _level_of(status: int) -> int:
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
        return logging.WARNING
    return logging.INFO if status < HTTPStatus.INTERNAL_SERVER_ERROR else logging.ERROR


def log_fields(record: RequestRecord) -> dict[str, Any]:
    """Return what a line says of a request; what it has no value for is left out."""
    fields = {name: getattr(record, name) for name in _FIELDS}
    fields["error"] = str(record.failure) if record.failure else None
    for name in _TIMES:
        value = getattr(record, name)
        fields[name] = None if value is None else round(value, 3)
    return {name: value for name, value in fields.items() if value not in (None, "")}
