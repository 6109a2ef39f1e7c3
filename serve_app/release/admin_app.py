"""The release desk's HTTP: the page, the status, and what changes a release; no Ray."""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from pipeline.contract.errors import (
    ConfigError,
    FolderError,
    InvalidRequestError,
    TextlaneError,
)
from serve_app.http_body import parse_body, read_body
from serve_app.http_frame import FrameRules, RequestFrame, route_path, send_json
from serve_app.pages import HTML, PAGE_HEADERS
from serve_app.release.door import ReleaseDeskDoor
from serve_app.release.status import ReleaseHistory, ReleaseStatus
from serve_app.request_record import RequestObserver

PAGE_PATH, STATUS_PATH, HISTORY_PATH = "/release", "/v1/release", "/v1/release/history"
ACTIONS = ("start", "pause", "resume", "promote", "abort")
MAX_BODY_BYTES = 64 * 1024
_MAX_BUNDLE_CHARS = 4096
_GUIDE = f"{PAGE_PATH} is the page, {STATUS_PATH} the status."
_EXAMPLE = 'Send {"bundle": "/models/v2/bundle"} and, if you have one, "plan": {…}.'
_SHORTER = "A plan is short."
_NO_BODY = "Send {} or nothing."
_JSON = b"application/json"
_NO_STORE = (b"cache-control", b"no-store")
# Nothing is answered later than the desk does; the frame's records need a number.
_TIMEOUT_S = 60.0
_Handler = Callable[[Scope, Receive], Awaitable[ReleaseStatus | ReleaseHistory]]


class StartRequest(BaseModel):
    """Body of ``POST /v1/release/start``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    bundle: str
    """Absolute folder of the candidate, as the cluster sees it."""
    plan: dict[str, Any] | None = None
    """What a plan file holds; null: the default plan."""

    @field_validator("bundle")
    @classmethod
    def _check_bundle(cls, bundle: str) -> str:
        if not 1 <= len(bundle) <= _MAX_BUNDLE_CHARS or not bundle.isprintable():
            raise ValueError(f"must be 1 to {_MAX_BUNDLE_CHARS} printable characters")
        if not PurePosixPath(bundle).is_absolute():
            raise ValueError("must be an absolute path: the desk runs in a folder of its own")
        return bundle


class _Empty(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AdminApp:
    """The ASGI application that the desk serves on its own port."""

    def __init__(
        self,
        desk: ReleaseDeskDoor,
        *,
        api_keys: Sequence[str] = (),
        observers: Sequence[RequestObserver] = (),
    ) -> None:
        """Build the routes.

        Args:
            desk: what answers.
            api_keys: one of them must be sent to ``/v1/…``; none: all on this machine may ask,
                and nothing from elsewhere is let in.
            observers: receive every request at its end.
        """
        self._desk = desk
        self._has_keys = bool(api_keys)
        self._page = Path(__file__).with_name("page.html").read_bytes()
        self._routes: Mapping[str, tuple[str, _Handler]] = {
            STATUS_PATH: ("GET", self._status),
            HISTORY_PATH: ("GET", self._history),
            f"{STATUS_PATH}/start": ("POST", self._start),
            **{f"{STATUS_PATH}/{action}": ("POST", self._act) for action in ACTIONS[1:]},
        }
        rules = FrameRules(
            version=lambda: "",  # An admin request is of no version.
            known_paths=frozenset({PAGE_PATH, *self._routes}),
            request_timeout_s=_TIMEOUT_S,
            api_keys=api_keys,
            guide=_GUIDE,
        )
        self._frame = RequestFrame(self._route, rules=rules, observers=observers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        await self._frame(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, headers = route_path(scope), dict(scope["headers"])
        if not self._has_keys:
            _check_host(headers.get(b"host", b"").decode("latin-1"))
        if path in (PAGE_PATH, "/"):
            _check_method(scope, "GET")
            await _send_page(self._page, send)
            return
        if path not in self._routes:
            raise HTTPException(404)
        method, handler = self._routes[path]
        _check_method(scope, method)
        if method == "POST":
            _check_content_type(headers.get(b"content-type", b""))
        try:
            answer = await handler(scope, receive)
        except (ConfigError, FolderError) as error:
            raise _as_request_error(error) from error
        await send_json(answer.to_json(), send, extra=(_NO_STORE,))

    async def _status(self, _scope: Scope, _receive: Receive) -> ReleaseStatus:
        return await self._desk.status()

    async def _history(self, _scope: Scope, _receive: Receive) -> ReleaseHistory:
        return await self._desk.history()

    async def _start(self, scope: Scope, receive: Receive) -> ReleaseStatus:
        body = await read_body(scope, receive, max_bytes=MAX_BODY_BYTES, remedy=_SHORTER)
        request = parse_body(body, StartRequest, example=_EXAMPLE)
        return await self._desk.start(request.bundle, plan=request.plan)

    async def _act(self, scope: Scope, receive: Receive) -> ReleaseStatus:
        body = await read_body(scope, receive, max_bytes=MAX_BODY_BYTES, remedy=_SHORTER)
        parse_body(body or b"{}", _Empty, example=_NO_BODY)
        actions: Mapping[str, Callable[[], Awaitable[ReleaseStatus]]] = {
            "pause": self._desk.pause,
            "resume": self._desk.resume,
            "promote": self._desk.promote,
            "abort": self._desk.abort,
        }
        return await actions[route_path(scope).rpartition("/")[2]]()


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine and nothing else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_host(given: str) -> None:
    # Without keys, being on this machine is the permission. A page that somebody here looks at
    # must not borrow it: its own host's name may be made to point here (DNS rebinding).
    host = given.rpartition("]")[0].lstrip("[") if given.startswith("[") else given.split(":")[0]
    if not is_loopback(host.lower()):
        raise InvalidRequestError(
            "without admin_keys this port answers only to this machine's own names",
            place="Host",
            value=given[:100],
            remedy="Ask 127.0.0.1 (from elsewhere through a tunnel), or set admin_keys.",
        )


def _check_content_type(given: bytes) -> None:
    # A browser asks before it sends this type to another origin, and is told nothing; so no
    # foreign page can press our buttons.
    if given.split(b";")[0].strip().lower() != _JSON:
        raise InvalidRequestError(
            "must be application/json",
            place="Content-Type",
            value=given[:100].decode("latin-1"),
            remedy="Send the header Content-Type: application/json.",
        )


def _check_method(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise HTTPException(405, headers={"Allow": method})


def _as_request_error(error: TextlaneError) -> InvalidRequestError:
    if isinstance(error, FolderError):
        return InvalidRequestError(str(error), place="bundle")
    # The sentence says the place first; here that is the field.
    return InvalidRequestError(
        str(error).removeprefix(f"{error.place}: "), place=error.place or "plan"
    )


async def _send_page(page: bytes, send: Send) -> None:
    names = {"content-type": HTML, "content-length": str(len(page)), **PAGE_HEADERS}
    headers = [(name.lower().encode(), value.encode()) for name, value in names.items()]
    await send({"type": "http.response.start", "status": 200, "headers": [*headers, _NO_STORE]})
    await send({"type": "http.response.body", "body": page})
