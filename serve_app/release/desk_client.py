"""Asks a release desk over HTTP, for the command line."""

from collections.abc import Mapping
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from pipeline.contract.errors import ConfigError, RequestError, ServiceError
from serve_app.release.status import ReleaseHistory, ReleaseStatus

_TIMEOUT_S = 60.0
_NO_DESK = (
    "Name the port that the service printed as the release desk's with --url; the service's "
    "setting admin_port chooses it."
)
_ViewT = TypeVar("_ViewT", bound=BaseModel)


class DeskClient:
    """One desk; a context manager."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        """Take its address, without a slash at the end, and the key to send."""
        self._url = url
        headers = {"X-API-Key": key} if key else {}
        self._http = httpx.Client(headers=headers, timeout=_TIMEOUT_S, trust_env=False)

    def __enter__(self) -> "DeskClient":
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self._http.close()

    def status(self) -> ReleaseStatus:
        """Return how the release stands.

        Raises:
            ConfigError: no release desk is there.
            ServiceError: the desk cannot tell.
            RequestError: it wants a key.
        """
        return self._ask("GET", "", ReleaseStatus)

    def history(self) -> ReleaseHistory:
        """Return the finished releases; raises as :meth:`status` does."""
        return self._ask("GET", "/history", ReleaseHistory)

    def start(self, bundle: str, *, plan: Mapping[str, Any] | None) -> ReleaseStatus:
        """Start a release; raises as :meth:`status` does, RequestError also for a refusal."""
        return self._ask("POST", "/start", ReleaseStatus, body={"bundle": bundle, "plan": plan})

    def act(self, action: str) -> ReleaseStatus:
        """Pause, resume, promote or abort; raises as :meth:`start` does."""
        return self._ask("POST", f"/{action}", ReleaseStatus, body={})

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[_ViewT],
        *,
        body: Mapping[str, Any] | None = None,
    ) -> _ViewT:
        try:
            answer = self._http.request(method, f"{self._url}/v1/release{path}", json=body)
        except httpx.TransportError as error:
            raise ConfigError(
                f"no release desk answers: {error or type(error).__name__}",
                place=self._url,
                remedy=f"Is the service running? {_NO_DESK}",
            ) from None
        if not answer.is_success:
            raise self._refusal(answer)
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError:
            raise self._no_desk("it does not answer as a release desk of this version") from None

    def _refusal(self, answer: httpx.Response) -> Exception:
        try:
            code, message = (answer.json()["error"][name] for name in ("code", "message"))
        except (ValueError, KeyError, TypeError):
            return self._no_desk(f"this is no release desk: it answers {answer.status_code}")
        if code in ("not_found", "method_not_allowed"):
            return self._no_desk(f"this is no release desk: {message}")
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            remedy = "Give it with --key @FILE or TEXTLANE_RELEASE_KEY."
            return RequestError("the desk asks for a key, or for another", remedy=remedy)
        kind = ServiceError if answer.is_server_error else RequestError
        return kind(str(message))

    def _no_desk(self, problem: str) -> ConfigError:
        return ConfigError(problem, place=self._url, remedy=_NO_DESK)
