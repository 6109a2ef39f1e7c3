"""The release desk's deployment: one replica that decides, and serves the admin port."""

import asyncio
import logging
import time
from contextvars import Context

from ray import serve

from pipeline.contract.errors import ConfigError, NotReadyError
from serve_app.config import ServeSettings
from serve_app.metrics import ReleaseMetrics
from serve_app.release.admin_app import AdminApp
from serve_app.release.admin_server import AdminServer
from serve_app.release.desk import Desk, DeskPlace
from serve_app.release.lane_apps import LaneApps
from serve_app.release.report import IngressReport
from serve_app.release.routing import RoutingTable, ServedVersion
from serve_app.release.store import ReleaseStore

TICK_S = 1.0
_HUNG_S = 60.0
"""Seconds without a look after which the replica is to be replaced."""
_RETRY_PORT_S = 2.0
# What is logged here stands in the replica's own file, which Ray's dashboard shows.
_logger = logging.getLogger("ray.serve")


class ReleaseDesk:
    """Keeps releases for all ingresses; see ``Desk``."""

    def __init__(self, settings: ServeSettings, *, base: ServedVersion) -> None:
        """Take up the state that is stored.

        Args:
            settings: as given, with an absolute bundle path.
            base: the version that the application was built with.

        Raises:
            FolderError: (or a subtype) the stored state cannot be read.
        """
        app_name = serve.get_replica_context().app_name
        lanes = LaneApps(settings, app_name=app_name)
        self._settings = settings
        self._desk = Desk(
            DeskPlace(
                base=base,
                app_name=app_name,
                store=ReleaseStore(settings.release_folder),
                runner=lanes,
                open_bundle=lanes.open_bundle,
                observe=ReleaseMetrics().observe,
                logger=_logger,
            )
        )
        self._ticked_s = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    async def reconfigure(self, _user_config: object) -> None:
        """Begin to work; Ray Serve calls this on the replica's event loop, before any request."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(work, context=Context())
                for work in (self._look_on(), self._open_port())
            ]

    async def exchange(self, report: IngressReport) -> RoutingTable:
        """Take an ingress's report and return who answers from now on."""
        return self._desk.exchange(report)

    async def check_health(self) -> None:
        """Let Ray Serve replace a desk that no longer looks.

        Raises:
            NotReadyError: its last look was long ago.
        """
        passed_s = time.monotonic() - self._ticked_s
        if passed_s > _HUNG_S:
            raise NotReadyError("the release desk hangs", value=f"{passed_s:.0f} s")

    async def _look_on(self) -> None:
        while True:
            try:
                await self._desk.tick()
            except Exception:
                # The next look may well succeed, and must come.
                _logger.exception("the release desk could not look")
            self._ticked_s = time.monotonic()
            await asyncio.sleep(TICK_S)

    async def _open_port(self) -> None:
        """Serve people, as soon as the port is free: the desk before may not have ended yet."""
        keys = [key.get_secret_value() for key in self._settings.admin_keys or ()]
        app, said = AdminApp(self._desk, api_keys=keys), ""
        host, port = self._settings.admin_host, self._settings.admin_port
        while True:
            try:
                server = AdminServer(app, host=host, port=port, has_keys=bool(keys))
                break
            except ConfigError as error:
                if str(error) != said:
                    said = str(error)
                    _logger.error("releases cannot be started or seen: %s", error)
            await asyncio.sleep(_RETRY_PORT_S)
        await server.start()
        _logger.info("releases: http://%s:%d/release", host, server.port)
