"""The ingress deployment: the HTTP application inside a Ray Serve replica."""

import logging
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from pipeline.contract.errors import ConfigError
from serve_app.config import ServeSettings
from serve_app.http_app import PREDICT_PATH, HttpApp
from serve_app.metrics import IngressMetrics
from serve_app.release.feedback_taker import FeedbackTaker
from serve_app.release.report import IngressReport
from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.shadow import ShadowRunner
from serve_app.release.stored_table import read_stored_table
from serve_app.release.table_follower import DeskLine, TableFollower
from serve_app.release.traffic import TrafficLog
from serve_app.release.version_loader import VersionLoader
from serve_app.request_log import RequestLog
from serve_app.versions import Untold, Versions

# What is logged here stands in the replica's own file, which Ray rotates and its dashboard shows.
_REPLICA_LOGGER = "ray.serve"


class Ingress:
    """One HTTP application for each replica."""

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
        self._api_keys = [key.get_secret_value() for key in settings.api_keys or ()]
        self._desk = desk
        self._loader = VersionLoader(
            settings, version=version, lanes={"short": short, "long": long}
        )
        self._versions = Versions(self._loader.base.service, split=Untold())
        self._traffic = TrafficLog(predict_path=PREDICT_PATH)
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
        self._is_configured = False

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
        if not self._is_configured:
            self._is_configured = True
            await self._follower.start()

    async def _exchange(self, report: IngressReport) -> RoutingTable:
        table: RoutingTable = await self._desk.exchange.remote(report)
        return table

    def __serve_build_asgi_app__(self) -> HttpApp:
        """Return the application; Ray Serve calls this in the replica."""
        observers = (self._traffic, IngressMetrics(), RequestLog(self._logger))
        return HttpApp(
            self._versions,
            observers=observers,
            api_keys=self._api_keys,
            feedback=FeedbackTaker(self._versions, log=self._traffic),
        )

    def __del__(self) -> None:
        """Write what the log still holds; Ray Serve calls this when it stops the replica."""
        # With its throughput settings Ray keeps up to 1,000 lines back and drops them at the end.
        for handler in logging.getLogger(_REPLICA_LOGGER).handlers:
            handler.flush()
