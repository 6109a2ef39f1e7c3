"""`POST /v1/predict` as bare ASGI: body in, service, body out; no work per request but that."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from pipeline.contract.errors import TextlaneError
from serve_app.error_answers import describe_item_error
from serve_app.http_body import parse_body, read_body
from serve_app.http_frame import record_of, send_json
from serve_app.request_record import RequestRecord
from serve_app.schemas import Origin, PredictRequest
from serve_app.service import Outcome
from serve_app.versions import Versions

_EXAMPLE = 'Send {"text": "..."} or {"texts": ["...", "..."]}; /docs has the schema.'
_METHOD = "POST"
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
        request = parse_body(body, PredictRequest, example=_EXAMPLE)
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
