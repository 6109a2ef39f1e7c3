"""What `serve run serve_app/config.yaml` builds: an ingress, two lanes and the release desk."""

import logging
from typing import Any

from ray import serve
from ray.serve import Application

from serve_app import live_settings
from serve_app.config import ServeSettings, settings_from_arguments
from serve_app.ingress import Ingress
from serve_app.lane_deployment import HEALTH_CHECK_PERIOD_S, SPARE_CALLS, bind_lane
from serve_app.live_settings import INGRESS_LIVE, live_values
from serve_app.release.admin_server import check_admin_host
from serve_app.release.desk_replica import ReleaseDesk
from serve_app.release.routing import ServedVersion
from serve_app.served import Served, open_served

# Ray shows and keeps what is logged here while it builds an application.
_logger = logging.getLogger("ray.serve")
_DESK_NUM_CPUS = 0.05
_DESK_SHUTDOWN_S = 5.0


def build_app(args: dict[str, Any]) -> Application:
    """Return the application for the arguments in the Ray Serve file.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or impossible.
        FolderError: (or a subtype) the bundle cannot be served.
    """
    given, settings, served = _settle(args)
    if served.tuning_note:
        _logger.warning(served.tuning_note)
    _logger.info(served.origins_line)
    version, folder = served.version, settings.bundle
    deployment = serve.deployment(
        name="Ingress",
        num_replicas=settings.ingress_replicas,
        ray_actor_options={"num_cpus": settings.ingress_num_cpus},
        user_config=live_values(settings, INGRESS_LIVE),
        # Over the admission limit, so that the 503 is ours and not a silent queue of Ray's.
        max_ongoing_requests=2 * settings.max_queued_requests + SPARE_CALLS,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=settings.request_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
    )
    return deployment(serve.ingress()(Ingress)).bind(
        settings,
        version=version,
        short=bind_lane(settings, name="short", version=version),
        long=bind_lane(settings, name="long", version=version),
        desk=_bind_desk(
            given.model_copy(update={"bundle": folder}),
            base=ServedVersion(version=version, bundle=folder, app_name=None),
        ),
    )


def check_deployments(args: dict[str, Any], deployments: object) -> None:
    """Check what the file says of deployments; ``textlane serve`` calls this before it starts Ray.

    Args:
        args: the application's arguments.
        deployments: its ``deployments``.

    Raises:
        ConfigError: an entry is for no deployment, or a ``user_config`` cannot be.
    """
    _, settings, served = _settle(args)
    live_settings.check_deployments(settings, served.bundle, deployments)


def _settle(args: dict[str, Any]) -> tuple[ServeSettings, ServeSettings, Served]:
    """Return the settings as given, as every replica gets them, and what is served with them."""
    given = settings_from_arguments(args)
    check_admin_host(given.admin_host, has_keys=bool(given.admin_keys))
    served = open_served(given)
    # Replicas may run in another folder than the one this is called in, and must all take the
    # same cut between the lanes, whatever machine they are on.
    folder = str(served.bundle.folder)
    settled = {**served.limits.tuned, "bundle": folder, "tuning": None}
    return given, given.model_copy(update=settled), served


def _bind_desk(settings: ServeSettings, *, base: ServedVersion) -> Application:
    # As given and not as tuned: each candidate has a tuning of its own, or defaults.
    deployment = serve.deployment(
        name="ReleaseDesk",
        ray_actor_options={"num_cpus": _DESK_NUM_CPUS},
        user_config={},  # Else Ray Serve does not call reconfigure.
        # An ingress waits for one answer at a time, and gives up some.
        max_ongoing_requests=4 * settings.ingress_replicas + SPARE_CALLS,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=_DESK_SHUTDOWN_S,
        graceful_shutdown_wait_loop_s=0.2,
    )
    return deployment(ReleaseDesk).bind(settings, base=base)
