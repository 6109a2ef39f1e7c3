"""One gRPC call: metadata and bytes in, the service, a message or a status out; no Ray."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

import grpc

from serve_app.error_answers import describe_error
from serve_app.request_headers import (
    API_KEY_HEADER,
    DEADLINE_HEADER,
    RELEASE_KEY_HEADER,
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
from serve_app.rpc.messages import build_response, parse_message
from serve_app.rpc.predict_pb2 import PredictResponse
from serve_app.rpc.predictor import PREDICT_METHOD
from serve_app.versions import Versions

REQUEST_ID_KEY = "request_id"
"""As Ray Serve calls it: it makes one where the client sends none, and sends it back."""
CODE_KEY, FIELD_KEY, RETRY_AFTER_KEY = "error-code", "error-field", "retry-after"
STATUS_CODES: Mapping[int, grpc.StatusCode] = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    # Not RESOURCE_EXHAUSTED, which clients take for "later".
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    HTTPStatus.UNPROCESSABLE_ENTITY: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.INTERNAL_SERVER_ERROR: grpc.StatusCode.INTERNAL,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""HTTP status of an error → its code over gRPC."""
_METHOD = "GRPC"


class CallContext(Protocol):
    """What Ray Serve hands over beside a message."""

    def invocation_metadata(self) -> Iterable[tuple[str, Any]]:
        """Return what the client sent."""
        ...

    def trailing_metadata(self) -> Iterable[tuple[str, Any]]:
        """Return what goes back, the request id among it."""
        ...

    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str]]) -> None:
        """Add to it."""
        ...

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status."""
        ...

    def set_details(self, details: str) -> None:
        """Set the message of the status."""
        ...


class RpcDoor:
    """Answers calls of ``Predict``; one for each ingress process."""

    def __init__(
        self,
        versions: Versions,
        *,
        observers: Sequence[RequestObserver],
        api_keys: Sequence[str] = (),
    ) -> None:
        """Take the versions that answer.

        Args:
            versions: what answers.
            observers: receive every request at its end.
            api_keys: one of them must be sent; none: all may ask.
        """
        self._versions = versions
        self._observers = observers
        self._keys = ApiKeys(api_keys)

    async def predict(self, message: bytes, context: CallContext) -> PredictResponse:
        """Return the answer to one call; with an error it is empty and the context says why.

        Ray Serve passes the context on only with an answer, so nothing is raised but the
        cancellation of a call whose client left or whose deadline passed.
        """
        record = RequestRecord(
            path=PREDICT_METHOD,
            method=_METHOD,
            version=self._versions.stable_version(),
            timeout_s=self._versions.stable.served.limits.request_timeout_s,
        )
        try:
            return await self._answer(message, context, record)
        except asyncio.CancelledError:
            record.status, record.code = CLIENT_GONE_STATUS, CLIENT_GONE_CODE
            raise
        except Exception as error:
            _tell_error(error, context, record)
            return PredictResponse()
        finally:
            finish_record(record, self._observers)

    async def _answer(
        self, message: bytes, context: CallContext, record: RequestRecord
    ) -> PredictResponse:
        sent = dict(context.invocation_metadata())
        given_id = dict(context.trailing_metadata()).get(REQUEST_ID_KEY)
        record.request_id = read_request_id(given_id, record, place=REQUEST_ID_KEY)
        self._keys.check(_value(sent, API_KEY_HEADER), _value(sent, "authorization"))
        deadline_s = read_deadline_s(_value(sent, DEADLINE_HEADER), record)
        record.timeout_s = min(record.timeout_s, deadline_s)
        record.release_key = read_release_key(_value(sent, RELEASE_KEY_HEADER))
        max_bytes = self._versions.stable.served.limits.max_body_bytes
        request = parse_message(message, max_bytes=max_bytes)
        service, split = self._versions.stable, self._versions.split
        if split is not None:
            service = split.choose(record)
        record.version = service.version
        prediction = await service.predict(request, record)
        is_list = request.texts is not None
        response = build_response(prediction.outcomes, record, is_list=is_list)
        record.status = HTTPStatus.OK
        if split is not None:
            split.after_answer(request, record, prediction)
        return response


def _value(sent: Mapping[str, Any], name: str) -> bytes | None:
    value = sent.get(name.lower())
    return value.encode() if isinstance(value, str) else value


def _tell_error(error: Exception, context: CallContext, record: RequestRecord) -> None:
    described = describe_error(error, record)
    record.status = described.kind.status
    context.set_code(STATUS_CODES[described.kind.status])
    context.set_details(described.detail.message)
    told = [(CODE_KEY, described.detail.code)]
    if described.detail.field is not None:
        told.append((FIELD_KEY, described.detail.field))
    if described.retry_after_s is not None:
        told.append((RETRY_AFTER_KEY, str(described.retry_after_s)))
    context.set_trailing_metadata(told)
