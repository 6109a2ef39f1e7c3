"""What `/openapi.json` says of predictions, headers and errors."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from pipeline.contract.errors import RequestError, ServiceError
from serve_app.error_answers import ERROR_KINDS, INTERNAL_CODE
from serve_app.request_headers import (
    API_KEY_HEADER,
    DEADLINE_HEADER,
    MAX_REQUEST_ID_CHARS,
    RELEASE_KEY_HEADER,
    REQUEST_ID_HEADER,
)
from serve_app.schemas import (
    ErrorBody,
    FeedbackAnswer,
    FeedbackRequest,
    MultiLabelResponse,
    PredictRequest,
    SequenceResponse,
    TextsResponse,
    TokenResponse,
)

_JSON = "application/json"
_REFERENCE = "#/components/schemas/{model}"
_ANSWERS: tuple[type[BaseModel], ...] = (
    SequenceResponse,
    MultiLabelResponse,
    TokenResponse,
    TextsResponse,
)
_UNAUTHORIZED = 401
_PREDICT_STATUSES = (400, 413, 422, 429, 500, 503, 504)
_FEEDBACK_STATUSES = (400, 413)
_RETRIED = (429, 503)


def codes_of(status: int) -> list[str]:
    """Return the codes of the errors that a client may see under a status."""
    visible = (
        kind.code
        for error, kind in ERROR_KINDS.items()
        if kind.status == status and issubclass(error, RequestError | ServiceError)
    )
    return [*visible, *([INTERNAL_CODE] if status == 500 else [])]


def documented_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's ``responses`` for statuses that have the body of an error."""
    return {
        status: {"model": ErrorBody, "description": _describe_status(status)} for status in statuses
    }


def add_predict(document: dict[str, Any], *, path: str, has_keys: bool) -> dict[str, Any]:
    """Return an OpenAPI document with the operation that FastAPI does not see.

    Args:
        document: what FastAPI made; it is changed.
        path: where predictions are answered.
        has_keys: whether an API key must be sent.
    """
    if path in document["paths"]:
        return document
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    asked: list[tuple[type[BaseModel], JsonSchemaMode]] = [(PredictRequest, "validation")]
    asked += [(model, "serialization") for model in _ANSWERS]
    asked.append((ErrorBody, "serialization"))
    _, made = models_json_schema(asked, ref_template=_REFERENCE)
    schemas.update(made["$defs"])
    document["paths"][path] = {"post": _describe_predict(has_keys=has_keys)}
    if has_keys:
        document["components"]["securitySchemes"] = {
            "header": {"type": "apiKey", "in": "header", "name": API_KEY_HEADER},
            "bearer": {"type": "http", "scheme": "bearer"},
        }
        for name, operations in document["paths"].items():
            if name.startswith("/v1/"):
                for operation in operations.values():
                    operation["security"] = [{"header": []}, {"bearer": []}]
    return document


def add_feedback(document: dict[str, Any], *, path: str, has_keys: bool) -> None:
    """Put the operation that takes feedback into an OpenAPI document; once is enough."""
    if path in document["paths"]:
        return
    statuses = sorted([*_FEEDBACK_STATUSES, *([_UNAUTHORIZED] if has_keys else [])])
    asked: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (FeedbackRequest, "validation"),
        (FeedbackAnswer, "serialization"),
    ]
    _, made = models_json_schema(asked, ref_template=_REFERENCE)
    document.setdefault("components", {}).setdefault("schemas", {}).update(made["$defs"])
    document["paths"][path] = {
        "post": {
            "summary": "Feedback",
            "description": "Say what the right label of an answered text was; while a release is "
            "under way, the accuracy of its two versions is compared.",
            "operationId": "feedback",
            "requestBody": {
                "required": True,
                "content": {_JSON: {"schema": _refer(FeedbackRequest)}},
            },
            "responses": {
                "200": {
                    "description": "Counted.",
                    "content": {_JSON: {"schema": _refer(FeedbackAnswer)}},
                },
                **{str(status): _describe_error(status) for status in statuses},
            },
        }
    }


def _describe_predict(*, has_keys: bool) -> dict[str, Any]:
    statuses = [*_PREDICT_STATUSES, *([_UNAUTHORIZED] if has_keys else [])]
    answers = {"anyOf": [_refer(answer) for answer in _ANSWERS]}
    return {
        "summary": "Predict",
        "description": "Label one text, a pair of texts, several texts, or the words of one text.",
        "operationId": "predict",
        "parameters": _parameters(),
        "requestBody": {"required": True, "content": {_JSON: {"schema": _refer(PredictRequest)}}},
        "responses": {
            "200": {"description": "Answered.", "content": {_JSON: {"schema": answers}}},
            **{str(status): _describe_error(status) for status in sorted(statuses)},
        },
    }


def _describe_error(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": _describe_status(status),
        "content": {_JSON: {"schema": _refer(ErrorBody)}},
    }
    if status in _RETRIED:
        described["headers"] = {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        }
    return described


def _describe_status(status: int) -> str:
    return f"`code` is one of: {', '.join(codes_of(status))}."


def _parameters() -> Iterable[dict[str, Any]]:
    return [
        {
            "name": REQUEST_ID_HEADER,
            "in": "header",
            "description": "Comes back in the answer and stands in every log line; made if absent.",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_REQUEST_ID_CHARS},
        },
        {
            "name": DEADLINE_HEADER,
            "in": "header",
            "description": "Milliseconds that the client waits; later, the work is dropped.",
            "schema": {"type": "integer", "minimum": 1},
        },
        {
            "name": RELEASE_KEY_HEADER,
            "in": "header",
            "description": "A user's or tenant's id: while a release is under way, all requests "
            "with one key are answered by the same version.",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_REQUEST_ID_CHARS},
        },
    ]


def _refer(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}
