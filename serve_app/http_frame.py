"""What surrounds every HTTP request: its id, its time, and no exception that gets out."""

import time
import uuid
from collections.abc import Callable
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.contract.errors import InvalidRequestError, TextTooLongError

REQUEST_ID_HEADER = "X-Request-ID"
MAX_REQUEST_ID_CHARS = 128
_OTHER_PATH = "other"

SendError = Callable[[Exception, str], ASGIApp]
"""Builds the answer to an exception for a request id."""


class RequestObserver(Protocol):
    """Receives the figures of every request."""

    def observe_request(self, *, path: str, status: int, latency_s: float) -> None:
        """Count one answered request."""
        ...


class RequestFrame:
    """The ASGI layer around all routes."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        answer_error: SendError,
        observer: RequestObserver,
        known_paths: frozenset[str],
    ) -> None:
        """Wrap an application.

        Args:
            app: answers the requests.
            answer_error: builds the answer to an exception that the application let out.
            observer: receives path, status and time.
            known_paths: paths that get figures of their own; all others share one, or a
                scanner could fill the metrics' memory.
        """
        self._app = app
        self._answer_error = answer_error
        self._observer = observer
        self._known_paths = known_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 500
        given = Headers(scope=scope).get(REQUEST_ID_HEADER)
        is_usable = given is not None and is_request_id(given)
        request_id = given if given is not None and is_usable else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        has_begun = False

        async def send_on(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                if given is None:
                    # Ray's proxy sets this header itself, also when the client sent none.
                    MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        try:
            if given is not None and not is_usable:
                raise InvalidRequestError(
                    f"must be 1 to {MAX_REQUEST_ID_CHARS} printable ASCII characters",
                    place=REQUEST_ID_HEADER,
                    remedy="Send a shorter, plain one, or none: then one is made.",
                )
            await self._app(scope, receive, send_on)
        except Exception as error:
            if has_begun:
                raise
            await self._answer_error(error, request_id)(scope, receive, send_on)
        finally:
            path = scope["path"] if scope["path"] in self._known_paths else _OTHER_PATH
            self._observer.observe_request(
                path=path, status=status, latency_s=time.monotonic() - started
            )


def is_request_id(text: str) -> bool:
    """Return whether a text may be used as a request id, in headers and logs."""
    return 0 < len(text) <= MAX_REQUEST_ID_CHARS and text.isascii() and text.isprintable()


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Return the body; stop reading as soon as it is over the limit.

    Raises:
        TextTooLongError: the body is longer than ``max_bytes``.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise TextTooLongError(
                f"the body is over the limit of {max_bytes} bytes",
                place="body",
                remedy="Send fewer or shorter texts at once.",
            )
    return bytes(body)
