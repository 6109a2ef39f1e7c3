"""What `serve run serve_app/config.yaml` builds: an ingress and two lanes."""

import logging
import warnings
from collections.abc import Callable
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from serve_app import live_settings
from serve_app.config import ServeSettings, settings_from_arguments
from serve_app.ingress import Ingress
from serve_app.lane import Lane
from serve_app.limits import LaneName
from serve_app.live_settings import INGRESS_LIVE, LANE_LIVE, live_values
from serve_app.served import Served, open_served

# Calls that must get through to a replica beside the counted texts: health checks.
_SPARE_CALLS = 16
# Ray replaces a replica after three failed checks in a row; with its 10 s that takes half a minute.
_HEALTH_CHECK_PERIOD_S = 2.0
# Replicas tell their load this often, and the policy sees its mean over the second number;
# chosen: a burst is seen within the default delay. Ray's own are 10 and 30.
_STATS_INTERVAL_S = 2.0
_STATS_MEAN_S = 6.0
# Ray shows and keeps what is logged here while it builds an application.
_logger = logging.getLogger("ray.serve")


def build_app(args: dict[str, Any]) -> Application:
    """Return the application for the arguments in the Ray Serve file.

    Raises:
        ConfigError: a setting is unknown, of the wrong type or impossible.
        FolderError: (or a subtype) the bundle cannot be served.
    """
    settings, served = _settle(args)
    if served.tuning_note:
        _logger.warning(served.tuning_note)
    _logger.info(served.origins_line)
    version = served.version
    deployment = serve.deployment(
        name="Ingress",
        num_replicas=settings.ingress_replicas,
        ray_actor_options={"num_cpus": settings.ingress_num_cpus},
        user_config=live_values(settings, INGRESS_LIVE),
        # Over the admission limit, so that the 503 is ours and not a silent queue of Ray's.
        max_ongoing_requests=2 * settings.max_queued_requests + _SPARE_CALLS,
        health_check_period_s=_HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=settings.request_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
    )
    return deployment(serve.ingress()(Ingress)).bind(
        settings,
        version=version,
        short=_bind_lane(settings, name="short", version=version),
        long=_bind_lane(settings, name="long", version=version),
    )


def check_deployments(args: dict[str, Any], deployments: object) -> None:
    """Check what the file says of deployments; ``textlane serve`` calls this before it starts Ray.

    Args:
        args: the application's arguments.
        deployments: its ``deployments``.

    Raises:
        ConfigError: an entry is for no deployment, or a ``user_config`` cannot be.
    """
    settings, served = _settle(args)
    live_settings.check_deployments(settings, served.bundle, deployments)


def _settle(args: dict[str, Any]) -> tuple[ServeSettings, Served]:
    """Return the settings that every replica gets, and what is served with them."""
    given = settings_from_arguments(args)
    served = open_served(given)
    # Replicas may run in another folder than the one this is called in, and must all take the
    # same cut between the lanes, whatever machine they are on.
    folder = str(served.bundle.folder)
    settled = {**served.limits.tuned, "bundle": folder, "tuning": None}
    return given.model_copy(update=settled), served


def _bind_lane(settings: ServeSettings, *, name: LaneName, version: str) -> Application:
    deployment = serve.deployment(
        name=f"{name.capitalize()}Lane",
        **_replicas(settings, name),
        ray_actor_options={
            "num_cpus": settings.lane_num_cpus,
            "num_gpus": settings.lane_num_gpus,
        },
        user_config=live_values(settings, LANE_LIVE),
        max_ongoing_requests=settings.ingress_replicas * settings.max_queued_requests
        + _SPARE_CALLS,
        health_check_period_s=_HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=settings.request_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
    )
    return deployment(Lane).bind(settings, name=name, version=version)


def _replicas(settings: ServeSettings, name: LaneName) -> dict[str, Any]:
    least, most = settings.replica_range(name)
    if least == most:
        return {"num_replicas": least}
    build_policy: Callable[..., AutoscalingPolicy] = AutoscalingPolicy  # Ray leaves it untyped.
    policy = build_policy(
        # By name: what Ray makes of a class itself cannot be built anew from the Serve file.
        policy_function="serve_app.scaling:LaneScaling",
        policy_kwargs={
            "up_delay_s": settings.scale_up_delay_s,
            "down_delay_s": settings.scale_down_delay_s,
        },
    )
    with warnings.catch_warnings():
        # Ray would have it set by a variable, which 2.60 does not read.
        warnings.simplefilter("ignore", DeprecationWarning)
        config = AutoscalingConfig(
            min_replicas=least,
            max_replicas=most,
            policy=policy,
            metrics_interval_s=_STATS_INTERVAL_S,
            look_back_period_s=_STATS_MEAN_S,
            # The policy has its own, which can be tested without waiting.
            upscale_delay_s=0.0,
            downscale_delay_s=0.0,
        )
    return {"autoscaling_config": config}
