"""Lanes of releases as applications of their own on Ray Serve, beside the service's."""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from pipeline.contract.errors import NotReadyError
from serve_app.config import ServeSettings
from serve_app.lane_deployment import bind_lane
from serve_app.release.evidence_keeper import Opened
from serve_app.release.lane_keeper import LanesState
from serve_app.release.routing import ServedVersion
from serve_app.served import open_served

_Status = Literal["starting", "running", "failed", "ending"]
_STATUSES: Mapping[str, _Status] = {
    "NOT_STARTED": "starting",
    "DEPLOYING": "starting",
    "DEPLOY_FAILED": "failed",
    "RUNNING": "running",
    "UNHEALTHY": "running",
    "DELETING": "ending",
}
# A replica that a new controller finds again was never lost.
_NOT_MISSING = {"RUNNING", "RECOVERING", "STOPPING", "PENDING_MIGRATION"}


class LaneApps:
    """A ``LaneRunner``; Ray Serve's calls wait, so they run in threads."""

    def __init__(self, settings: ServeSettings, *, app_name: str) -> None:
        """Take the settings of the service as given, and its application's name."""
        self._settings = settings
        self._prefix = f"{app_name}-"

    def open_bundle(self, folder: str) -> Opened:
        """Return a bundle as these lanes would serve it, every byte checked.

        Raises:
            FolderError: (or a subtype) there is none, or it is damaged.
            ConfigError: it cannot be served with the service's settings.
        """
        served = open_served(_settings_for(self._settings, folder), named_by="the bundle's folder")
        return Opened(
            version=served.version,
            folder=str(served.bundle.folder),
            manifest=served.bundle.manifest,
        )

    async def start(self, place: ServedVersion) -> None:
        """Have the lanes of a version started; return without waiting for them.

        Raises:
            FolderError: (or a subtype) its bundle is not the one or not usable.
            ConfigError: it cannot be served with the service's settings.
            NotReadyError: Ray Serve does not take it now.
        """
        try:
            await asyncio.to_thread(self._start, place)
        except (RayError, RayServeException) as error:
            raise NotReadyError("Ray Serve starts no lanes now") from error

    def _start(self, place: ServedVersion) -> None:
        given = _settings_for(self._settings, place.bundle)
        served = open_served(given, expected_version=place.version)
        tuned: dict[str, Any] = dict(served.limits.tuned)
        settings = given.model_copy(update=tuned)
        long = bind_lane(settings, name="long", version=place.version)
        short = bind_lane(settings, name="short", version=place.version, beside=long)
        assert place.app_name is not None
        target = serve.RunTarget(target=short, name=place.app_name, route_prefix=None)
        serve.run_many(
            [target],
            wait_for_ingress_deployment_creation=False,
            wait_for_applications_running=False,
        )

    async def end(self, app_name: str) -> None:
        """Have lanes ended; what they do is finished first.

        Raises:
            NotReadyError: Ray Serve does not take it now.
        """
        try:
            await asyncio.to_thread(serve.delete, app_name, _blocking=False)
        except (RayError, RayServeException) as error:
            raise NotReadyError("Ray Serve ends no lanes now") from error

    async def read(self) -> Mapping[str, LanesState]:
        """Return all lanes of releases, by their application's name.

        Raises:
            NotReadyError: Ray Serve cannot tell now.
        """
        try:
            status = await asyncio.to_thread(serve.status)
        except (RayError, RayServeException) as error:
            raise NotReadyError("Ray Serve cannot tell which lanes run") from error
        return {
            name: _read_state(application)
            for name, application in status.applications.items()
            if name.startswith(self._prefix)
        }


def _settings_for(settings: ServeSettings, folder: str) -> ServeSettings:
    # A tuning that the settings name is for the base; a candidate's own lies beside its bundle.
    return settings.model_copy(update={"bundle": folder, "tuning": None})


def _read_state(application: Any) -> LanesState:
    counts: dict[str, int] = {}
    messages = [application.message]
    for deployment in application.deployments.values():
        messages.append(deployment.message)
        for state, count in deployment.replica_states.items():
            # Ray gives names where its types say an enum.
            name = str(getattr(state, "value", state))
            counts[name] = counts.get(name, 0) + count
    return LanesState(
        status=_STATUSES[str(application.status.value)],
        message=" ".join(message for message in messages if message),
        num_running=counts.get("RUNNING", 0),
        num_missing=sum(count for name, count in counts.items() if name not in _NOT_MISSING),
    )
