"""The ingress deployment: HTTP application and gRPC service inside a Ray Serve replica."""

import logging
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import ConfigError
from serve_app.config import ServeSettings, read_ray_serve_settings
from serve_app.http_app import PREDICT_PATH, HttpApp
from serve_app.listening_sockets import send_at_once
from serve_app.live_settings import INGRESS_LIVE, with_live_values
from serve_app.metrics import NO_LANE, IngressMetrics, SettingMetrics
from serve_app.release.feedback_taker import FeedbackTaker
from serve_app.release.report import IngressReport
from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.shadow import ShadowRunner
from serve_app.release.stored_table import read_stored_table
from serve_app.release.table_follower import DeskLine, TableFollower
from serve_app.release.traffic import TrafficLog
from serve_app.release.version_loader import VersionLoader
from serve_app.request_log import RequestLog
from serve_app.rpc.door import CallContext, RpcDoor
from serve_app.rpc.predict_pb2 import PredictResponse
from serve_app.rpc.predictor import PREDICT_METHOD
from serve_app.told_settings import ingress_settings
from serve_app.versions import Untold, Versions

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
        desk: DeploymentHandle[Any],
    ) -> None:
        """Load the bundle's tokenizer and take the handles of lanes and release desk.

        Raises:
            FolderError: (or a subtype) the bundle is not the one or not usable.
        """
        self._logger = logging.getLogger(_REPLICA_LOGGER)
        api_keys = [key.get_secret_value() for key in settings.api_keys or ()]
        self._settings = self._live_settings = settings
        self._setting_metrics = SettingMetrics(NO_LANE, version=version)
        self._desk = desk
        self._loader = VersionLoader(
            settings, version=version, lanes={"short": short, "long": long}
        )
        self._versions = Versions(self._loader.base.service, split=Untold())
        self._traffic = TrafficLog(predict_paths=(PREDICT_PATH, PREDICT_METHOD))
        base = ServedVersion(version=version, bundle=settings.bundle, app_name=None)
        self._follower = TableFollower(
            self._versions,
            line=DeskLine(
                exchange=self._exchange,
                read_stored=lambda: read_stored_table(settings.release_folder, base),
                load=self._loader.load,
                forget_others=self._loader.forget_others,
            ),
            reporter=serve.get_replica_context().replica_id.unique_id,
            log=self._traffic,
            shadows=ShadowRunner(self._traffic, admission=self._loader.admission),
            logger=self._logger,
        )
        observers = (self._traffic, IngressMetrics(), RequestLog(self._logger))
        feedback = FeedbackTaker(self._versions, log=self._traffic)
        self._http_app = HttpApp(
            self._versions, observers=observers, api_keys=api_keys, feedback=feedback
        )
        self._rpc_door = RpcDoor(self._versions, observers=observers, api_keys=api_keys)
        self._is_configured = self._sends_at_once = False

    async def reconfigure(self, user_config: object) -> None:
        """Take other settings, without restart; see ``INGRESS_LIVE`` and ``Lane.reconfigure``.

        Ray Serve calls this before it sends the first request; so it is here that a replica waits
        to be told which version answers.

        Raises:
            ConfigError: names the value and the remedy; only the first time.
        """
        try:
            self._loader.reconfigure(user_config)
        except ConfigError as error:
            if not self._is_configured:
                raise
            self._logger.error("settings stay as they are: %s", error)
            return
        self._live_settings = with_live_values(self._settings, user_config, names=INGRESS_LIVE)
        if not self._is_configured:
            self._is_configured = True
            await self._follower.start()

    async def check_health(self) -> None:
        """Prepare the HTTP port and tell the settings.

        Ray Serve calls this first when the port is there, and then every 2 s.
        """
        if not self._sends_at_once:
            self._sends_at_once = True
            send_at_once()
        limits = self._loader.base.service.served.limits
        told = ingress_settings(self._live_settings, limits, read_ray_serve_settings())
        self._setting_metrics.tell(told)

    async def _exchange(self, report: IngressReport) -> RoutingTable:
        table: RoutingTable = await self._desk.exchange.remote(report)
        return table

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
