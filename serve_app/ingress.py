"""HTTP: routes, validation, and which error is which status."""

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ValidationError
from ray.serve.handle import DeploymentHandle
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pipeline.contract import errors
from pipeline.contract.errors import InvalidRequestError, TextlaneError
from serve_app.config import ServeSettings
from serve_app.http_frame import RequestFrame, RequestObserver, read_body
from serve_app.lane import RemoteLane
from serve_app.limits import LaneName
from serve_app.metrics import IngressMetrics
from serve_app.schemas import (
    ErrorBody,
    ErrorDetail,
    Health,
    ModelInfo,
    ModelLimits,
    MultiLabelAnswer,
    MultiLabelResponse,
    PredictRequest,
    SequenceResponse,
    TextsResponse,
    TokenAnswer,
    TokenResponse,
)
from serve_app.served import open_served
from serve_app.service import PredictService

STATUS_BY_ERROR: dict[type[TextlaneError], int] = {
    errors.TextlaneError: 500,
    errors.ConfigError: 500,
    errors.DataError: 500,
    errors.BadRowsError: 500,
    errors.FolderError: 500,
    errors.MissingFileError: 500,
    errors.AlteredFileError: 500,
    errors.SchemaVersionError: 500,
    errors.WeightsError: 500,
    errors.TrainingError: 500,
    errors.NotFiniteError: 500,
    errors.ExportError: 500,
    errors.CommandError: 500,
    errors.RequestError: 400,
    errors.InvalidRequestError: 400,
    errors.EmptyTextError: 422,
    errors.TextTooLongError: 413,
    errors.ServiceError: 500,
    errors.OverloadedError: 503,
    errors.DeadlineError: 504,
    errors.NotReadyError: 503,
    errors.InferenceError: 500,
}
PREDICT_PATH, HEALTH_PATH, MODEL_PATH = "/v1/predict", "/healthz", "/v1/model"
_RETRY_AFTER_S = 1
_JSON = "application/json"
_EXAMPLE = 'Send {"text": "..."} or {"texts": ["...", "..."]}; /docs has the schema.'
_logger = logging.getLogger(__name__)


class Ingress:
    """The ingress deployment: one HTTP application for each replica."""

    def __init__(
        self,
        settings: ServeSettings,
        *,
        version: str,
        short: DeploymentHandle[Any],
        long: DeploymentHandle[Any],
    ) -> None:
        """Load the bundle's tokenizer and take the lanes' handles.

        Raises:
            FolderError: (or a subtype) the bundle is not the one or not usable.
        """
        served = open_served(settings, expected_version=version)
        lanes: Mapping[LaneName, RemoteLane] = {
            "short": RemoteLane(short),
            "long": RemoteLane(long),
        }
        encoder = served.bundle.load_text_encoder()
        self._service = PredictService(served, encoder=encoder, lanes=lanes)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the application; Ray Serve calls this in the replica."""
        return build_http_app(self._service, observer=IngressMetrics())


def build_http_app(service: PredictService, *, observer: RequestObserver) -> FastAPI:
    """Return the HTTP application that answers from a service."""
    app = FastAPI(
        title="textlane",
        version=service.served.version,
        description="Labels for texts. Errors are JSON: `{error: {type, message, request_id}}`.",
        exception_handlers={HTTPException: _handle_error},
    )
    _add_predict_route(app, service)

    @app.get(HEALTH_PATH, response_model=Health, responses=_documented(503))
    async def healthz() -> Response:
        """Say whether both lanes can answer."""
        await service.check()
        return _json(Health(status="ok", model=service.served.version))

    @app.get(MODEL_PATH, response_model=ModelInfo)
    async def model() -> Response:
        """Describe the served bundle."""
        return _json(_describe(service))

    # As middleware it stands inside Starlette's own last resort, which answers plain text.
    app.add_middleware(
        RequestFrame,
        answer_error=error_response,
        observer=observer,
        known_paths=frozenset({PREDICT_PATH, HEALTH_PATH, MODEL_PATH}),
    )
    return app


def _add_predict_route(app: FastAPI, service: PredictService) -> None:
    limits = service.served.limits
    schema = {_JSON: {"schema": PredictRequest.model_json_schema()}}

    @app.post(
        PREDICT_PATH,
        response_model=SequenceResponse | MultiLabelResponse | TokenResponse | TextsResponse,
        responses=_documented(400, 413, 422, 500, 503, 504),
        openapi_extra={"requestBody": {"required": True, "content": schema}},
    )
    async def predict(request: Request) -> Response:
        """Label one text, a pair of texts, several texts, or the words of one text."""
        body = await read_body(request, max_bytes=limits.max_body_bytes)
        asked = parse_request(body)
        answers = await service.predict(asked)
        origin = {"request_id": request.state.request_id, "model": service.served.version}
        if asked.texts is not None:
            return _json(TextsResponse(answers=answers, **origin))
        if isinstance(answers[0], TokenAnswer):
            return _json(TokenResponse(**origin, **dict(answers[0])))
        if isinstance(answers[0], MultiLabelAnswer):
            return _json(MultiLabelResponse(**origin, **dict(answers[0])))
        return _json(SequenceResponse(**origin, **dict(answers[0])))


def parse_request(body: bytes) -> PredictRequest:
    """Return the request in a JSON body.

    Raises:
        InvalidRequestError: not JSON, not Unicode, an unknown or missing field, a wrong type.
    """
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "body" + "".join(f"[{part!r}]" for part in first["loc"])
        problem, remedy = first["msg"].removeprefix("Value error, "), _EXAMPLE
        if first["type"] == "extra_forbidden":
            problem = "unknown field"
            names = difflib.get_close_matches(str(first["loc"][-1]), PredictRequest.model_fields, 1)
            remedy = "".join(f"Did you mean {name}? " for name in names) + _EXAMPLE
        raise InvalidRequestError(
            problem[0].lower() + problem[1:], place=place, remedy=remedy
        ) from None


def error_response(error: Exception, request_id: str) -> Response:
    """Return the JSON answer to an exception; only what is meant for the client is shown."""
    kind, headers = type(error).__name__, {}
    if isinstance(error, HTTPException):
        status, message = error.status_code, str(error.detail)
        kind, headers = message.title().replace(" ", ""), dict(error.headers or {})
    elif isinstance(error, TextlaneError):
        status, message = STATUS_BY_ERROR[type(error)], str(error)
    else:
        status, kind, message = 500, "InternalError", ""
    if not isinstance(error, HTTPException | errors.RequestError | errors.ServiceError):
        message = "unexpected error; the service's log has it under this request_id"
    if status >= 500 and not isinstance(error, errors.OverloadedError):
        # A known failure is told in a line; its traceback, if any, is in the lane's log.
        trace = None if isinstance(error, errors.ServiceError) else error
        _logger.error("request %s: %d, %s", request_id, status, error, exc_info=trace)
    if status == 503:
        headers["Retry-After"] = str(_RETRY_AFTER_S)
    detail = ErrorDetail(type=kind, message=message, request_id=request_id)
    return _json(ErrorBody(error=detail), status=status, headers=headers)


async def _handle_error(request: Request, error: Exception) -> Response:
    return error_response(error, request.state.request_id)


def _describe(service: PredictService) -> ModelInfo:
    served = service.served
    manifest, limits = served.bundle.manifest, served.limits
    shown = {name: getattr(limits, name) for name in ModelLimits.model_fields}
    return ModelInfo(
        model=served.version,
        name=manifest.name,
        task=manifest.task,
        labels=list(manifest.labels),
        takes_pairs=manifest.takes_pairs,
        limits=ModelLimits(**shown),
        quality=manifest.quality,
        provenance=manifest.provenance,
    )


def _documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorBody} for status in statuses}


def _json(
    body: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        body.model_dump_json(exclude_none=False),
        status_code=status,
        headers=dict(headers or {}),
        media_type=_JSON,
    )
