"""What surrounds every HTTP request: id, key, deadline, time, and no exception that gets out."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.error_answers import DOCS_GUIDE, ErrorAnswer, answer_error
from serve_app.request_headers import (
    DEADLINE_HEADER,
    RELEASE_KEY_HEADER,
    REQUEST_ID_HEADER,
    ApiKeys,
    read_deadline_s,
    read_release_key,
    read_request_id,
)
from serve_app.request_record import (
    CLIENT_GONE_CODE,
    CLIENT_GONE_STATUS,
    RequestObserver,
    RequestRecord,
    finish_record,
)

KEYED_PREFIX = "/v1/"
OTHER_PATH = "other"
_RECORD = "textlane_record"
_Headers = dict[bytes, bytes]


@dataclass(frozen=True, kw_only=True)
class FrameRules:
    """What holds for every request."""

    version: Callable[[], str]
    """Tells the stable version, which changes with a promotion."""
    known_paths: frozenset[str]
    """Paths that get figures of their own; all others share one, or a scanner could fill the
    metrics' memory."""
    request_timeout_s: float
    api_keys: Sequence[str] = ()
    """Keys of which one must be sent to the paths under ``/v1/``; none: all may ask."""
    guide: str = DOCS_GUIDE
    """Ends the answer to a path that is not there."""


class RequestFrame:
    """The ASGI layer around all routes."""

    def __init__(
        self, app: ASGIApp, *, rules: FrameRules, observers: Sequence[RequestObserver]
    ) -> None:
        """Wrap an application; ``observers`` receive every request at its end."""
        self._app = app
        self._rules = rules
        self._observers = observers
        self._keys = ApiKeys(rules.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = route_path(scope)
        record = RequestRecord(
            path=path if path in self._rules.known_paths else OTHER_PATH,
            method=scope["method"],
            version=self._rules.version(),
            timeout_s=self._rules.request_timeout_s,
        )
        scope[_RECORD] = record
        try:
            await self._answer(scope, receive, send, record)
        except asyncio.CancelledError:
            record.status, record.code = CLIENT_GONE_STATUS, CLIENT_GONE_CODE
            task = asyncio.current_task()
            # Who stopped the task from outside (a server that ends) must see it stop.
            if not record.has_left or task is None or task.uncancel() > 0:
                raise
        finally:
            finish_record(record, self._observers)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> None:
        headers: _Headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status, record.has_begun = message["status"], True
                if given is None:
                    # Ray's proxy sets this header itself, also when the client sent none.
                    name = REQUEST_ID_HEADER.lower().encode()
                    message["headers"] = [*message["headers"], (name, record.request_id.encode())]
            await send(message)

        try:
            text = None if given is None else given.decode("latin-1")
            record.request_id = read_request_id(text, record)
            if route_path(scope).startswith(KEYED_PREFIX):
                self._keys.check(headers.get(b"x-api-key"), headers.get(b"authorization"))
            deadline_s = read_deadline_s(headers.get(DEADLINE_HEADER.lower().encode()), record)
            record.timeout_s = min(record.timeout_s, deadline_s)
            record.release_key = read_release_key(headers.get(RELEASE_KEY_HEADER.lower().encode()))
            await self._app(scope, receive, send_on)
        except Exception as error:
            if record.has_begun:
                raise
            await send_error(answer_error(error, record, guide=self._rules.guide), send_on)


class ErrorEdge:
    """The ASGI layer that keeps exceptions from Starlette's last resort, which is plain text."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope["type"] != "http" or record_of(scope).has_begun:
                raise
            await send_error(answer_error(error, record_of(scope)), send)


def route_path(scope: Scope) -> str:
    """Return the path below the prefix that the application is served under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def record_of(scope: Scope) -> RequestRecord:
    """Return the record of the request that a scope belongs to."""
    record: RequestRecord = scope[_RECORD]
    return record


async def send_error(answer: ErrorAnswer, send: Send) -> None:
    """Send an error as a whole HTTP answer."""
    extra = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    await send_json(answer.body, send, status=answer.status, extra=extra)


async def send_json(
    body: bytes, send: Send, *, status: int = 200, extra: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Send a JSON body as a whole HTTP answer."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *extra,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
