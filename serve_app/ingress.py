"""The ingress deployment: HTTP application and gRPC service inside a Ray Serve replica."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import ConfigError
from serve_app.config import ServeSettings
from serve_app.http_app import HttpApp
from serve_app.limits import LaneName, resolve_limits
from serve_app.live_settings import INGRESS_LIVE, with_live_values
from serve_app.metrics import IngressMetrics
from serve_app.remote_lane import RemoteLane
from serve_app.request_log import RequestLog
from serve_app.rpc.door import CallContext, RpcDoor
from serve_app.rpc.predict_pb2 import PredictResponse
from serve_app.served import open_served
from serve_app.service import PredictService

# What is logged here stands in the replica's own file, which Ray rotates and its dashboard shows.
_REPLICA_LOGGER = "ray.serve"


class Ingress:
    """One HTTP application and one gRPC service, over the same queue, for each replica."""

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
        coalesce_s = settings.coalesce_ms / 1000.0
        self._settings = settings
        self._remote_lanes: Mapping[LaneName, RemoteLane] = {
            "short": RemoteLane(short, coalesce_s=coalesce_s),
            "long": RemoteLane(long, coalesce_s=coalesce_s),
        }
        self._is_configured = False
        encoder = served.bundle.load_text_encoder()
        api_keys = [key.get_secret_value() for key in settings.api_keys or ()]
        self._service = PredictService(
            served, encoder=encoder, lanes=self._remote_lanes, logs_texts=settings.log_texts
        )
        observers = (IngressMetrics(), RequestLog(logging.getLogger(_REPLICA_LOGGER)))
        self._http_app = HttpApp(self._service, observers=observers, api_keys=api_keys)
        self._rpc_door = RpcDoor(self._service, observers=observers, api_keys=api_keys)

    async def reconfigure(self, user_config: object) -> None:
        """Take other settings, without restart; see ``INGRESS_LIVE`` and ``Lane.reconfigure``.

        Raises:
            ConfigError: names the value and the remedy; only the first time.
        """
        try:
            settings = with_live_values(self._settings, user_config, names=INGRESS_LIVE)
            served = self._service.served
            limits = resolve_limits(settings, served.bundle)
        except ConfigError as error:
            if not self._is_configured:
                raise
            logging.getLogger(_REPLICA_LOGGER).error("settings stay as they are: %s", error)
            return
        self._is_configured = True
        self._service.served = replace(served, limits=limits)
        self._service.logs_texts = settings.log_texts
        for lane in self._remote_lanes.values():
            lane.coalesce_s = settings.coalesce_ms / 1000.0

    def __serve_build_asgi_app__(self) -> HttpApp:
        """Return the application; Ray Serve calls this in the replica."""
        return self._http_app

    async def Predict(self, request: bytes, grpc_context: CallContext) -> PredictResponse:
        """Answer one gRPC call; Ray Serve finds this, and the context, by their names."""
        return await self._rpc_door.predict(request, grpc_context)

    def __del__(self) -> None:
        """Write what the log still holds; Ray Serve calls this when it stops the replica."""
        # With its throughput settings Ray keeps up to 1,000 lines back and drops them at the end.
        for handler in logging.getLogger(_REPLICA_LOGGER).handlers:
            handler.flush()
