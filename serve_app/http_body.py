"""JSON bodies of requests: read within a limit, parsed into a model, refused with a remedy."""

import asyncio
import difflib
from typing import TypeVar

import orjson
from pydantic import BaseModel
from starlette.types import Receive, Scope

from pipeline.contract.errors import InvalidRequestError
from serve_app.http_frame import record_of
from serve_app.request_fields import FEWER_TEXTS, build_request, too_large
from serve_app.request_record import RequestRecord

_MAX_SHOWN_CHARS = 50
_BodyT = TypeVar("_BodyT", bound=BaseModel)


async def read_body(
    scope: Scope,
    receive: Receive,
    *,
    max_bytes: int,
    remedy: str = FEWER_TEXTS,
) -> bytes:
    """Return the body; one that says it is too long is refused before any of it is read.

    Raises:
        BodyTooLargeError: the body is longer than ``max_bytes``.
        asyncio.CancelledError: the client left before it had sent all of it.
    """
    for name, value in scope["headers"]:
        # Servers refuse what is no number; then only the bytes themselves count.
        if name == b"content-length" and value.isdigit() and int(value[:20]) > max_bytes:
            raise too_large(max_bytes, remedy=remedy)
    message = await receive()
    body = message.get("body", b"")
    if message.get("more_body", False):
        # Chunks end to end; a bytearray, because adding bytes to bytes copies all of them.
        gathered = bytearray(body)
        while message.get("more_body", False) and len(gathered) <= max_bytes:
            message = await receive()
            gathered += message.get("body", b"")
        body = bytes(gathered)
    if message["type"] == "http.disconnect":
        _leave(record_of(scope))
        await asyncio.sleep(0)  # Here the cancellation arrives.
    if len(body) > max_bytes:
        raise too_large(max_bytes, remedy=remedy)
    return bytes(body)


def parse_body(body: bytes, kind: type[_BodyT], *, example: str) -> _BodyT:
    """Return what a JSON body says.

    A body of millions of mistakes must not hold up the others: it is refused for its first.

    Args:
        body: as sent.
        kind: what it must be.
        example: for remedies, how one looks.

    Raises:
        InvalidRequestError: not JSON, not Unicode, an unknown or missing field, a wrong type.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"invalid JSON: {error}", place="body", remedy=example) from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("must be a JSON object", place="body", remedy=example)
    for name in fields:
        if name not in kind.model_fields:
            raise _unknown_field(name, kind, example)
    return build_request(fields, kind, remedy=example)


def _unknown_field(name: str, kind: type[BaseModel], example: str) -> InvalidRequestError:
    shown = name[:_MAX_SHOWN_CHARS]
    near = difflib.get_close_matches(shown, kind.model_fields, 1)
    remedy = "".join(f"Did you mean {known}? " for known in near) + example
    return InvalidRequestError("unknown field", place=shown, remedy=remedy)


def _leave(record: RequestRecord) -> None:
    task = asyncio.current_task()
    record.has_left = True
    if task is not None:
        task.cancel()
