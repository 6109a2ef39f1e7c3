"""The HTTP application: which path is answered by what; no Ray."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.error_answers import answer_error
from serve_app.feedback_door import FeedbackDesk, FeedbackDoor
from serve_app.http_frame import ErrorEdge, FrameRules, RequestFrame, record_of, route_path
from serve_app.openapi import add_feedback, add_predict, documented_errors
from serve_app.pages import HTML, PAGE_HEADERS
from serve_app.predict_door import PredictDoor
from serve_app.request_record import RequestObserver
from serve_app.schemas import Alive, ModelInfo, ModelLimits, Ready
from serve_app.service import PredictService
from serve_app.versions import Versions

PREDICT_PATH, MODEL_PATH, FEEDBACK_PATH = "/v1/predict", "/v1/model", "/v1/feedback"
ALIVE_PATH, READY_PATH, PAGE_PATH = "/healthz", "/readyz", "/"
DOCS_PATH = "/docs"
KNOWN_PATHS = frozenset(
    {PREDICT_PATH, MODEL_PATH, FEEDBACK_PATH, ALIVE_PATH, READY_PATH, PAGE_PATH, DOCS_PATH}
)
_JSON = "application/json"


class HttpApp(FastAPI):
    """All routes; predictions go round FastAPI, whose way costs more than all else at the door."""

    def __init__(
        self,
        versions: Versions,
        *,
        observers: Sequence[RequestObserver],
        api_keys: Sequence[str] = (),
        feedback: FeedbackDesk | None = None,
    ) -> None:
        """Build the routes.

        Args:
            versions: of which one answers.
            observers: receive every request at its end.
            api_keys: one of them must be sent to ``/v1/…``; none: all may ask.
            feedback: counts what users say the right label is; None: there is no such route.
        """
        served = versions.stable.served
        super().__init__(
            title="textlane",
            version=served.version,
            description="Labels for texts. Every error has the same JSON body, `ErrorBody`.",
            exception_handlers={HTTPException: _handle_error},
            # FastAPI's own pages load their scripts from the internet.
            docs_url=None,
            redoc_url=None,
        )
        rules = FrameRules(
            version=versions.stable_version,
            known_paths=KNOWN_PATHS,
            request_timeout_s=served.limits.request_timeout_s,
            api_keys=api_keys,
        )
        self._has_keys = bool(api_keys)
        self._versions = versions
        self._doors: dict[str, ASGIApp] = {PREDICT_PATH: PredictDoor(versions)}
        if feedback is not None:
            most = served.limits.max_body_bytes
            self._doors[FEEDBACK_PATH] = FeedbackDoor(feedback, max_body_bytes=most)
        self._frame = RequestFrame(self._route, rules=rules, observers=observers)
        self.add_middleware(ErrorEdge)
        _add_health(self, versions)
        _add_model(self, versions, has_keys=self._has_keys)
        _add_page(self, PAGE_PATH, file="page.html")
        _add_page(self, DOCS_PATH, file="docs.html")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        await self._frame(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        door = self._doors.get(route_path(scope)) if scope["type"] == "http" else None
        await (door or super().__call__)(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the document of all routes, those that FastAPI does not see among them."""
        document = super().openapi()
        if FEEDBACK_PATH in self._doors:
            add_feedback(document, path=FEEDBACK_PATH, has_keys=self._has_keys)
        document = add_predict(document, path=PREDICT_PATH, has_keys=self._has_keys)
        document["info"]["version"] = self._versions.stable_version()
        return document


def _add_health(app: FastAPI, versions: Versions) -> None:
    @app.get(ALIVE_PATH, response_model=Alive)
    async def healthz() -> Response:
        """Say that this process can answer; a process that cannot is to be started again."""
        return _respond(Alive())

    @app.get(READY_PATH, response_model=Ready, responses=documented_errors(503))
    async def readyz() -> Response:
        """Say whether both lanes are warm and serve this version; else send no traffic here."""
        await versions.check()
        return _respond(Ready(version=versions.stable_version()))


def _add_model(app: FastAPI, versions: Versions, *, has_keys: bool) -> None:
    keyed = (401,) if has_keys else ()

    @app.get(MODEL_PATH, response_model=ModelInfo, responses=documented_errors(*keyed))
    async def model() -> Response:
        """Describe the served bundle."""
        return _respond(_describe(versions.stable))


def _add_page(app: FastAPI, path: str, *, file: str) -> None:
    page = Path(__file__).with_name(file).read_bytes()

    @app.get(path, include_in_schema=False)
    async def show_page() -> Response:
        return Response(page, media_type=HTML, headers=PAGE_HEADERS)


async def _handle_error(request: Request, error: Exception) -> Response:
    answer = answer_error(error, record_of(request.scope))
    return Response(
        answer.body, status_code=answer.status, headers=dict(answer.headers), media_type=_JSON
    )


def _respond(body: BaseModel) -> Response:
    return Response(body.model_dump_json(), media_type=_JSON)


def _describe(service: PredictService) -> ModelInfo:
    served = service.served
    manifest, limits = served.bundle.manifest, served.limits
    shown = {name: getattr(limits, name) for name in ModelLimits.model_fields}
    return ModelInfo(
        version=served.version,
        name=manifest.name,
        task=manifest.task,
        labels=list(manifest.labels),
        takes_pairs=manifest.takes_pairs,
        limits=ModelLimits(**shown),
        quality=manifest.quality,
        provenance=manifest.provenance,
    )
