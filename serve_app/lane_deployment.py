"""The deployment of one lane: its replicas, how it scales, and what each may have in hand."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from serve_app.config import ServeSettings
from serve_app.lane import Lane
from serve_app.limits import LaneName
from serve_app.live_settings import LANE_LIVE, live_values
from serve_app.release.shadow import MOST_IN_HAND

# Calls that must get through to a replica beside the counted texts: health checks.
SPARE_CALLS = 16
# Ray replaces a replica after three failed checks in a row; with its 10 s that takes half a minute.
HEALTH_CHECK_PERIOD_S = 2.0
# Replicas tell their load this often, and the policy sees its mean over the second number;
# chosen: a burst is seen within the default delay. Ray's own are 10 and 30.
_STATS_INTERVAL_S = 2.0
_STATS_MEAN_S = 6.0
LANE_DEPLOYMENTS: Mapping[LaneName, str] = {"short": "ShortLane", "long": "LongLane"}


def bind_lane(
    settings: ServeSettings, *, name: LaneName, version: str, beside: Application | None = None
) -> Application:
    """Return a lane as Ray Serve deploys it.

    Args:
        settings: with an absolute bundle path, and all that a tuning decides.
        name: which texts it gets.
        version: the version that its replicas must find in the bundle's folder.
        beside: the other lane, where no ingress binds both.
    """
    deployment = serve.deployment(
        name=LANE_DEPLOYMENTS[name],
        **_replicas(settings, name),
        ray_actor_options={
            "num_cpus": settings.lane_num_cpus,
            "num_gpus": settings.lane_num_gpus,
        },
        user_config=live_values(settings, LANE_LIVE),
        max_ongoing_requests=settings.ingress_replicas
        * (settings.max_queued_requests + MOST_IN_HAND)
        + SPARE_CALLS,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        graceful_shutdown_timeout_s=settings.request_timeout_s,
        graceful_shutdown_wait_loop_s=0.2,
    )
    return deployment(Lane).bind(settings, name=name, version=version, beside=beside)


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
