"""Opens a version in an ingress replica: its bundle, and handles to its lanes on Ray Serve."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import NotReadyError
from serve_app.admission import Admission
from serve_app.config import ServeSettings
from serve_app.lane_deployment import LANE_DEPLOYMENTS
from serve_app.limits import LaneName, ServingLimits, resolve_limits
from serve_app.live_settings import INGRESS_LIVE, with_live_values
from serve_app.release.live_split import LoadedVersion
from serve_app.release.routing import ServedVersion
from serve_app.release.shadow import ShadowTarget
from serve_app.remote_lane import RemoteLane
from serve_app.served import Served, open_served
from serve_app.service import PredictService

_ANSWER_S = 30.0
"""Seconds that a lane may take to say what it was built with."""
LaneHandles = Mapping[LaneName, DeploymentHandle[Any]]


@dataclass(frozen=True, kw_only=True)
class _Built:
    settings: ServeSettings
    """As built, before live ones."""
    loaded: LoadedVersion
    lanes: Sequence[RemoteLane]


class VersionLoader:
    """Makes versions of one ingress; all of them share its admission and live settings."""

    def __init__(self, settings: ServeSettings, *, version: str, lanes: LaneHandles) -> None:
        """Open the base: the version that the application was built with.

        Raises:
            FolderError: (or a subtype) its bundle is not the one or not usable.
        """
        self.admission = Admission(most_wait_s=settings.request_timeout_s)
        self._built: list[_Built] = []
        self._user_config: object = {}
        served = open_served(settings, expected_version=version)
        self.base = self._build(settings, served, lanes)

    async def load(self, place: ServedVersion) -> LoadedVersion:
        """Return a version whose lanes answer.

        Raises:
            FolderError: (or a subtype) its bundle is not the one or not usable.
            NotReadyError: its lanes do not answer, or it is the base of another application.
        """
        if place.app_name is None:
            if place.version != self.base.version:
                raise NotReadyError(
                    f"this ingress was built with {self.base.version}", value=place.version
                )
            return self.base
        handles = await _find_lanes(place.app_name)
        try:
            # What its lanes were built with, so that both cut texts alike.
            async with asyncio.timeout(_ANSWER_S):
                settings: ServeSettings = await handles["short"].settings.remote()
        except (TimeoutError, RayError, RayServeException) as error:
            raise NotReadyError("its lanes do not answer", value=place.app_name) from error
        served = await asyncio.to_thread(open_served, settings, expected_version=place.version)
        loaded = self._build(settings, served, handles)
        await loaded.service.check()
        return loaded

    def reconfigure(self, user_config: object) -> None:
        """Take live settings for every version, those loaded later as well.

        Raises:
            ConfigError: names the value and the remedy; nothing has changed then.
        """
        for built in self._built:
            _resolve_live(built, user_config)
        self._user_config = user_config
        for built in self._built:
            _take_live(built, user_config)

    def forget_others(self, kept: Collection[LoadedVersion]) -> None:
        """Let go of versions that no table names any more, but never of the base."""
        self._built = [
            built for built in self._built if built.loaded is self.base or built.loaded in kept
        ]

    def _build(
        self, settings: ServeSettings, served: Served, handles: LaneHandles
    ) -> LoadedVersion:
        encoder = served.bundle.load_text_encoder()
        coalesce_s = settings.coalesce_ms / 1000.0
        # A call is answered when all its rows are: shadows have calls of their own.
        for_users, for_shadows = (
            {name: RemoteLane(handle, coalesce_s=coalesce_s) for name, handle in handles.items()}
            for _ in range(2)
        )
        service = PredictService(
            served,
            encoder=encoder,
            lanes=for_users,
            admission=self.admission,
            logs_texts=settings.log_texts,
        )
        shadow = ShadowTarget(served=served, encoder=encoder, lanes=for_shadows)
        built = _Built(
            settings=settings,
            loaded=LoadedVersion(service=service, shadow=shadow),
            lanes=[*for_users.values(), *for_shadows.values()],
        )
        _take_live(built, self._user_config)
        self._built.append(built)
        return built.loaded


def _resolve_live(built: _Built, user_config: object) -> tuple[ServeSettings, ServingLimits]:
    live = with_live_values(built.settings, user_config, names=INGRESS_LIVE)
    return live, resolve_limits(live, built.loaded.service.served.bundle)


def _take_live(built: _Built, user_config: object) -> None:
    live, limits = _resolve_live(built, user_config)
    service = built.loaded.service
    service.served = replace(service.served, limits=limits)
    service.logs_texts = live.log_texts
    for lane in built.lanes:
        lane.coalesce_s = live.coalesce_ms / 1000.0


async def _find_lanes(app_name: str) -> LaneHandles:
    def find(deployment: str) -> DeploymentHandle[Any]:
        return serve.get_deployment_handle(deployment, app_name=app_name)

    try:
        # It asks the controller and waits, which would hold up every request.
        return {
            lane: await asyncio.to_thread(find, deployment)
            for lane, deployment in LANE_DEPLOYMENTS.items()
        }
    except (RayError, RayServeException, KeyError) as error:
        raise NotReadyError("its application does not run", value=app_name) from error
