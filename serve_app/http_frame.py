"""What surrounds every HTTP request: id, key, deadline, time, and no exception that gets out."""

import asyncio
import hashlib
import hmac
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.contract.errors import InvalidRequestError, UnauthorizedError
from serve_app.error_answers import DOCS_GUIDE, ErrorAnswer, answer_error
from serve_app.request_record import (
    CLIENT_GONE_CODE,
    CLIENT_GONE_STATUS,
    RequestObserver,
    RequestRecord,
)

REQUEST_ID_HEADER = "X-Request-ID"
DEADLINE_HEADER = "X-Deadline-Ms"
API_KEY_HEADER = "X-API-Key"
RELEASE_KEY_HEADER = "X-Release-Key"
MAX_REQUEST_ID_CHARS = 128
KEYED_PREFIX = "/v1/"
OTHER_PATH = "other"
_RECORD = "textlane_record"
# Nobody waits for a day; longer numbers would only be there to be converted.
_MAX_DEADLINE_DIGITS = 8
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
        self._key_digests = [_digest(key.encode()) for key in rules.api_keys]

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
            record.total_ms = record.elapsed_s() * 1000.0
            for observer in self._observers:
                observer.observe_request(record)

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
            record.request_id = _read_request_id(given, record)
            self._check_key(headers, route_path(scope))
            record.timeout_s = min(record.timeout_s, _read_deadline_s(headers, record))
            record.release_key = _read_release_key(headers.get(b"x-release-key"))
            await self._app(scope, receive, send_on)
        except Exception as error:
            if record.has_begun:
                raise
            await send_error(answer_error(error, record, guide=self._rules.guide), send_on)

    def _check_key(self, headers: _Headers, path: str) -> None:
        if not self._key_digests or not path.startswith(KEYED_PREFIX):
            return
        bearer = headers.get(b"authorization", b"")
        given = headers.get(b"x-api-key") or bearer[7:] * (bearer[:7].lower() == b"bearer ")
        # Digests have one length, and every key is compared: the time tells nothing.
        digest = _digest(given.strip())
        num_equal = sum(hmac.compare_digest(digest, known) for known in self._key_digests)
        if not num_equal:
            raise UnauthorizedError(
                "this is not a key that is served here" if given else "there is no API key",
                place=API_KEY_HEADER,
                remedy=f"Send yours as {API_KEY_HEADER}, or as Authorization: Bearer KEY.",
            )


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


def is_request_id(text: str) -> bool:
    """Return whether a text may be used as a request id, in headers and logs."""
    return 0 < len(text) <= MAX_REQUEST_ID_CHARS and text.isascii() and text.isprintable()


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


def _read_request_id(given: bytes | None, record: RequestRecord) -> str:
    if given is None:
        return uuid.uuid4().hex
    text = given.decode("latin-1")
    if not is_request_id(text):
        record.request_id = uuid.uuid4().hex
        raise InvalidRequestError(
            f"must be 1 to {MAX_REQUEST_ID_CHARS} printable ASCII characters",
            place=REQUEST_ID_HEADER,
            remedy="Send a shorter, plain one, or none: then one is made.",
        )
    return text


def _read_release_key(given: bytes | None) -> str | None:
    if given is None:
        return None
    text = given.decode("latin-1")
    if not is_request_id(text):
        raise InvalidRequestError(
            f"must be 1 to {MAX_REQUEST_ID_CHARS} printable ASCII characters",
            place=RELEASE_KEY_HEADER,
            remedy="Send a stable name of your client, such as a hash of its user's id, or none.",
        )
    return text


def _read_deadline_s(headers: _Headers, record: RequestRecord) -> float:
    given = headers.get(DEADLINE_HEADER.lower().encode())
    if given is None:
        return record.timeout_s
    if not given.isdigit() or len(given) > _MAX_DEADLINE_DIGITS or int(given) == 0:
        raise InvalidRequestError(
            f"must be a whole number of milliseconds, 1 to {10**_MAX_DEADLINE_DIGITS - 1}",
            place=DEADLINE_HEADER,
            value=given[:20].decode("latin-1"),
            remedy="Send the time that you will wait, or leave the header out.",
        )
    return int(given) / 1000.0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
