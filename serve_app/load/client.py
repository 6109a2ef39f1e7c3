"""A cheap HTTP/1.1 client: it shares the cores with the service that it measures."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any

import httptools

from serve_app.load.target import Target

_MAX_IDLE_S = 3.0
"""Servers close idle connections, some after 5 s; a request must not meet that moment."""
_MAX_RETRY_AFTER_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes
    done_s: float
    """On the event loop's clock, when its last byte was read."""
    retry_after_s: float = 0.0
    """Seconds that the service asks to wait before another request; 0 where it does not."""


class NotHttpError(Exception):
    """What came back is no HTTP answer."""


class HttpClient:
    """Posts bodies to one target over as many connections as requests are under way.

    No limit holds requests back: they would queue here, where no figure shows it. Nothing is
    sent twice and no redirect is followed, so one request is one answer or one failure.
    """

    def __init__(self, target: Target, *, api_key: str | None = None) -> None:
        """Prepare to connect; ``api_key`` is sent as ``X-API-Key``."""
        key = f"X-API-Key: {api_key}\r\n" if api_key else ""
        self._head = (
            f"POST {target.path} HTTP/1.1\r\nHost: {target.host_header}\r\n"
            "User-Agent: textlane-load\r\nAccept: application/json\r\n"
            f"{key}Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self._target = target
        self._tls = ssl.create_default_context() if target.is_tls else None
        self._free: list[_Connection] = []

    async def post(self, body: bytes, *, until_s: float) -> Reply:
        """Send a body and return the answer.

        Args:
            body: JSON.
            until_s: when to give up, on the event loop's clock.

        Raises:
            TimeoutError: there was no answer by ``until_s``.
            NotHttpError: what came is no HTTP.
            OSError: the connection was refused or lost.
        """
        connection: _Connection | None = None
        try:
            async with asyncio.timeout_at(until_s):
                connection = self._take_free() or await self._connect()
                reply = await connection.send(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        except BaseException:
            # Its answer may still come and must not be taken for that of the next request.
            if connection is not None:
                connection.abort()
            raise
        if connection.is_open:
            connection.idle_since_s = reply.done_s
            self._free.append(connection)
        return reply

    def close(self) -> None:
        """Close every idle connection."""
        while self._free:
            self._free.pop().abort()

    def _take_free(self) -> "_Connection | None":
        # The last one used comes first, so that those beyond what is needed grow old.
        now = asyncio.get_running_loop().time()
        while self._free:
            connection = self._free.pop()
            if connection.is_open and now - connection.idle_since_s <= _MAX_IDLE_S:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> "_Connection":
        loop, target = asyncio.get_running_loop(), self._target
        name = target.host if self._tls else None
        for number, (family, address) in enumerate(target.addresses, 1):
            try:
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop),
                    str(address[0]),
                    int(address[1]),
                    family=family,
                    ssl=self._tls,
                    server_hostname=name,
                )
            except OSError:
                # A name may stand for IPv6 and IPv4 while the service listens on one.
                if number == len(target.addresses):
                    raise
            else:
                return connection
        raise AssertionError("a target has an address")


class _Connection(asyncio.Protocol):
    """One connection with at most one request under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_open = False
        self.idle_since_s = 0.0
        self._loop = loop
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._body: list[bytes] = []
        self._retry_after_s = 0.0

    def send(self, request: bytes) -> "asyncio.Future[Reply]":
        self._waiting = self._loop.create_future()
        if self.is_open:
            self._transport.write(request)
        else:
            self._fail(ConnectionResetError("closed before the request was sent"))
        return self._waiting

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(NotHttpError(str(error)))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._fail(error or ConnectionResetError("the service closed the connection"))

    def on_header(self, name: bytes, value: bytes) -> None:
        # The header may also hold a date, which nobody sends with 429.
        if name.lower() == b"retry-after" and value.isdigit():
            self._retry_after_s = min(float(value[:6]), _MAX_RETRY_AFTER_S)

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        waiting, status = self._waiting, self._parser.get_status_code()
        retry_after_s, self._retry_after_s = self._retry_after_s, 0.0
        if status < 200:
            return  # An interim answer; the real one follows.
        if waiting is None:
            self.abort()  # An answer to nothing: nobody knows what the next one would belong to.
            return
        self._waiting = None
        if not self._parser.should_keep_alive():
            self.abort()
        if not waiting.done():
            now = self._loop.time()
            waiting.set_result(
                Reply(status=status, body=body, done_s=now, retry_after_s=retry_after_s)
            )

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
