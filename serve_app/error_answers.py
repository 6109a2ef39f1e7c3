"""Every error's code, HTTP status and JSON body."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException

from pipeline.contract import errors
from pipeline.contract.errors import RequestError, ServiceError, TextlaneError
from serve_app.drain_rate import LEAST_WAIT_S
from serve_app.request_record import RequestRecord
from serve_app.schemas import ErrorBody, ErrorDetail, ItemError, ItemErrorDetail

INTERNAL_CODE = "internal_error"
DOCS_GUIDE = "/docs lists what there is."


@dataclass(frozen=True, kw_only=True)
class ErrorKind:
    """How a type of error leaves the house."""

    status: int
    code: str


_INTERNAL = ErrorKind(status=500, code=INTERNAL_CODE)
ERROR_KINDS: Mapping[type[TextlaneError], ErrorKind] = {
    errors.TextlaneError: _INTERNAL,
    errors.ConfigError: _INTERNAL,
    errors.DataError: _INTERNAL,
    errors.BadRowsError: _INTERNAL,
    errors.FolderError: _INTERNAL,
    errors.MissingFileError: _INTERNAL,
    errors.AlteredFileError: _INTERNAL,
    errors.SchemaVersionError: _INTERNAL,
    errors.WeightsError: _INTERNAL,
    errors.TrainingError: _INTERNAL,
    errors.NotFiniteError: _INTERNAL,
    errors.ExportError: _INTERNAL,
    errors.CommandError: _INTERNAL,
    errors.RequestError: ErrorKind(status=400, code="bad_request"),
    errors.UnauthorizedError: ErrorKind(status=401, code="unauthorized"),
    errors.InvalidRequestError: ErrorKind(status=400, code="invalid_request"),
    errors.EmptyTextError: ErrorKind(status=400, code="empty_text"),
    errors.TextTooLongError: ErrorKind(status=413, code="text_too_long"),
    errors.TooManyTokensError: ErrorKind(status=422, code="too_many_tokens"),
    errors.TooManyTextsError: ErrorKind(status=413, code="too_many_texts"),
    errors.BodyTooLargeError: ErrorKind(status=413, code="body_too_large"),
    errors.ReleaseConflictError: ErrorKind(status=409, code="release_conflict"),
    errors.ServiceError: ErrorKind(status=500, code="service_error"),
    errors.OverloadedError: ErrorKind(status=429, code="overloaded"),
    errors.DeadlineError: ErrorKind(status=504, code="deadline_exceeded"),
    errors.NotReadyError: ErrorKind(status=503, code="not_ready"),
    errors.InferenceError: ErrorKind(status=500, code="inference_failed"),
}
_UNEXPECTED = "unexpected error; the service's log has it under this request_id"


@dataclass(frozen=True, kw_only=True)
class ErrorAnswer:
    """An HTTP answer that is not 200."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class DescribedError:
    """An error as a client is told of it, whatever the protocol."""

    kind: ErrorKind
    detail: ErrorDetail
    retry_after_s: int | None
    """Seconds to wait before the request is sent again; None where that would not help."""


def describe_error(
    error: Exception, record: RequestRecord, *, guide: str = DOCS_GUIDE
) -> DescribedError:
    """Return what the client is told and note it in the request's record.

    Only what is meant for the client is shown: a type that is neither a RequestError nor a
    ServiceError has neither message nor field.

    Args:
        error: what was raised.
        record: of the request.
        guide: what tells somebody who asked for no path of ours which there are.
    """
    kind = _kind_of(error)
    message, field = _UNEXPECTED, None
    if isinstance(error, HTTPException):
        message = f"{error.detail}. {guide}"
    elif isinstance(error, RequestError | ServiceError):
        message, field = str(error), error.place
    record.code = kind.code
    if kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        record.failure = error
    detail = ErrorDetail(code=kind.code, message=message, field=field, request_id=record.request_id)
    retry_after_s = None
    if kind.status == HTTPStatus.TOO_MANY_REQUESTS:
        retry_after_s = record.retry_after_s
    elif kind.status == HTTPStatus.SERVICE_UNAVAILABLE:
        retry_after_s = LEAST_WAIT_S
    return DescribedError(kind=kind, detail=detail, retry_after_s=retry_after_s)


def answer_error(
    error: Exception, record: RequestRecord, *, guide: str = DOCS_GUIDE
) -> ErrorAnswer:
    """Return the HTTP answer to an exception; see ``describe_error``."""
    described = describe_error(error, record, guide=guide)
    status = described.kind.status
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if described.retry_after_s is not None:
        headers["Retry-After"] = str(described.retry_after_s)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = ErrorBody(error=described.detail).to_json()
    return ErrorAnswer(status=status, body=body, headers=headers)


def describe_item_error(error: RequestError | ServiceError) -> ItemError:
    """Return what stands in a list of answers in the place of one."""
    return ItemError(
        error=ItemErrorDetail(
            code=ERROR_KINDS[type(error)].code, message=str(error), field=error.place
        )
    )


def _kind_of(error: Exception) -> ErrorKind:
    if isinstance(error, HTTPException):
        phrase = HTTPStatus(error.status_code).phrase
        code = phrase.lower().replace(" ", "_").replace("-", "_")
        return ErrorKind(status=error.status_code, code=code)
    return ERROR_KINDS[type(error)] if isinstance(error, TextlaneError) else _INTERNAL
