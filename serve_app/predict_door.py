"""`POST /v1/predict` as bare ASGI: body in, service, body out; no work per request but that."""

import asyncio
import difflib
from collections.abc import Coroutine
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from pipeline.contract.errors import BodyTooLargeError, InvalidRequestError, TextlaneError
from serve_app.error_answers import describe_item_error
from serve_app.http_frame import record_of, send_json
from serve_app.request_record import RequestRecord
from serve_app.schemas import Origin, PredictRequest
from serve_app.service import Outcome
from serve_app.versions import Versions

_EXAMPLE = 'Send {"text": "..."} or {"texts": ["...", "..."]}; /docs has the schema.'
_METHOD = "POST"
_MAX_SHOWN_CHARS = 50
_AnswerT = TypeVar("_AnswerT")


class PredictDoor:
    """The ASGI application of one path."""

    def __init__(self, versions: Versions) -> None:
        """Take the versions of which one answers."""
        self._versions = versions
        self._max_body_bytes = versions.stable.served.limits.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            TextlaneError: (a subtype) there is no answer; the frame around tells the client.
            HTTPException: the method is not POST.
        """
        if scope["method"] != _METHOD:
            raise HTTPException(405, headers={"Allow": _METHOD})
        record = record_of(scope)
        body = await read_body(scope, receive, max_bytes=self._max_body_bytes)
        request = parse_request(body)
        service, split = self._versions.stable, self._versions.split
        if split is not None:
            service = split.choose(record)
        record.version = service.version
        work = service.predict(request, record)
        prediction = await run_while_connected(work, receive, record)
        origin = Origin(request_id=record.request_id, version=record.version).to_json()
        is_list = request.texts is not None
        await send_json(_join(origin, prediction.outcomes, is_list=is_list), send)
        if split is not None:
            split.after_answer(request, record, prediction)


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int) -> bytes:
    """Return the body; one that says it is too long is refused before any of it is read.

    Raises:
        BodyTooLargeError: the body is longer than ``max_bytes``.
        asyncio.CancelledError: the client left before it had sent all of it.
    """
    for name, value in scope["headers"]:
        # Servers refuse what is no number; then only the bytes themselves count.
        if name == b"content-length" and value.isdigit() and int(value[:20]) > max_bytes:
            raise _too_large(max_bytes)
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
        raise _too_large(max_bytes)
    return bytes(body)


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body is over the limit of {max_bytes} bytes",
        place="body",
        remedy="Send fewer or shorter texts at once.",
    )


def parse_request(body: bytes) -> PredictRequest:
    """Return the request in a JSON body.

    A body of millions of mistakes must not hold up the others: it is refused for its first.

    Raises:
        InvalidRequestError: not JSON, not Unicode, an unknown or missing field, a wrong type.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"invalid JSON: {error}", place="body", remedy=_EXAMPLE) from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("must be a JSON object", place="body", remedy=_EXAMPLE)
    for name in fields:
        if name not in PredictRequest.model_fields:
            raise _unknown_field(name)
    try:
        return PredictRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = first["msg"].removeprefix("Value error, ")
        raise InvalidRequestError(
            problem[0].lower() + problem[1:], place=_name_field(first["loc"]), remedy=_EXAMPLE
        ) from None


def _unknown_field(name: str) -> InvalidRequestError:
    shown = name[:_MAX_SHOWN_CHARS]
    near = difflib.get_close_matches(shown, PredictRequest.model_fields, 1)
    remedy = "".join(f"Did you mean {known}? " for known in near) + _EXAMPLE
    return InvalidRequestError("unknown field", place=shown, remedy=remedy)


def _name_field(path: tuple[int | str, ...]) -> str:
    """Return ``texts[1]`` for ``("texts", 1)``, ``body`` for the whole."""
    name = str(path[0]) if path else "body"
    return name + "".join(f"[{part!r}]" for part in path[1:])


async def run_while_connected(
    work: Coroutine[Any, Any, _AnswerT], receive: Receive, record: RequestRecord
) -> _AnswerT:
    """Return what the work returns; cancel it as soon as the client closes the connection.

    Raises:
        asyncio.CancelledError: the client has left; ``record.has_left`` says so.
    """
    task = asyncio.current_task()

    def stop(watch: "asyncio.Future[Message]") -> None:
        # After a whole body the next message is the end of the connection; a receive that
        # fails means the same.
        if not watch.cancelled() and task is not None:
            record.failure = watch.exception()
            record.has_left = True
            task.cancel()

    watcher = asyncio.ensure_future(receive())
    watcher.add_done_callback(stop)
    try:
        return await work
    finally:
        watcher.remove_done_callback(stop)
        watcher.cancel()


def _leave(record: RequestRecord) -> None:
    task = asyncio.current_task()
    record.has_left = True
    if task is not None:
        task.cancel()


def _join(origin: bytes, outcomes: list[Outcome], *, is_list: bool) -> bytes:
    """Return the body of an answer: ``origin`` is a JSON object that the rest goes into."""
    head = origin[:-1] + b","
    if is_list:
        items = [_item_json(outcome) for outcome in outcomes]
        return b"".join((head, b'"answers":[', b",".join(items), b"]}"))
    (outcome,) = outcomes
    if isinstance(outcome, TextlaneError):
        raise outcome
    return head + outcome.to_json()[1:]


def _item_json(outcome: Outcome) -> bytes:
    if isinstance(outcome, TextlaneError):
        return describe_item_error(outcome).to_json()
    return outcome.to_json()
