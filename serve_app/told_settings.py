"""Which settings a replica tells as metrics, so that `textlane doctor` can judge them."""

from serve_app.config import RayServeSettings, ServeSettings
from serve_app.limits import ServingLimits
from serve_app.machine import usable_cpus


def lane_settings(settings: ServeSettings, limits: ServingLimits) -> dict[str, float]:
    """Return name → value of what a lane works with now.

    ``usable_cpus`` is no setting, but threads can only be judged beside it.
    """
    return {
        "threads_per_replica": limits.threads_per_replica,
        "max_batch_requests": limits.max_batch_requests,
        "max_batch_tokens": limits.max_batch_tokens,
        "window_batches": settings.window_batches,
        "batch_wait_timeout_ms": settings.batch_wait_timeout_ms,
        "wait_when_idle": settings.wait_when_idle,
        "usable_cpus": usable_cpus(),
    }


def ingress_settings(
    settings: ServeSettings, limits: ServingLimits, ray: RayServeSettings
) -> dict[str, float]:
    """Return name → value of what an ingress works with now."""
    return {
        "max_queued_requests": limits.max_queued_requests,
        "short_max_tokens": limits.short_max_tokens,
        "coalesce_ms": settings.coalesce_ms,
        "haproxy": ray.with_haproxy,
        "throughput_optimized": ray.is_throughput_optimized,
    }
