"""Scrapes of a running service to what the symptoms look at; pure."""

from collections.abc import Mapping, Sequence

from cluster.doctor.observations import (
    LaneObservation,
    NodeObservation,
    ProcessMemory,
    ServingObservation,
)
from cluster.doctor.samples import Scrape
from cluster.doctor.window import Window

LANES = {"short": "ShortLane", "long": "LongLane"}
SLOW_INIT_S = 2.0
SLOW_STARTUP_S = 20.0
"""Both are bucket edges of Ray's histograms, which are in milliseconds."""
_PREDICT = ("/v1/predict", "/textlane.v1.Predictor/Predict")
"""Both doors, HTTP and gRPC."""
_LATENCY, _STAGE = "ray_textlane_request_latency_seconds", "ray_textlane_stage_latency_seconds"
_REQUESTS, _SETTING = "ray_textlane_requests_total", "ray_textlane_setting"
_LONGEST = "ray_textlane_batch_longest_tokens"
_REPLICA = "ray::ServeReplica:"


def observe_serving(scrapes: Sequence[Scrape]) -> ServingObservation | None:
    """Return what the scrapes show; None if there is nothing of textlane in them.

    Where no prediction was asked for in the window, the counters' whole life is looked at.
    """
    window = Window(scrapes=scrapes)
    if not any(sample.name.startswith("ray_textlane_") for sample in scrapes[-1].samples):
        return None
    is_live = window.increase(_REQUESTS, path=_PREDICT) > 0
    counted = window if is_live else window.since_start()
    outcomes = counted.increase_by(_REQUESTS, "outcome", path=_PREDICT)
    ingresses = _replicas(window, "Ingress")
    return ServingObservation(
        basis=f"the last {window.seconds:.0f} s" if is_live else "the whole life of the service",
        lanes={lane: _observe_lane(window, counted, lane=lane, is_live=is_live) for lane in LANES},
        outcomes={name: round(count) for name, count in outcomes.items() if count > 0},
        ingress_replicas=ingresses,
        ingress_settings=_settings(window, "none"),
        ingress_cpu_share=_ingress_cpu_share(window, ingresses) if is_live else None,
        nodes=tuple(_observe_nodes(window)),
        memory=tuple(_observe_memory(window)),
    )


def _observe_lane(window: Window, counted: Window, *, lane: str, is_live: bool) -> LaneObservation:
    deployment, replicas = LANES[lane], _replicas(window, LANES[lane])
    busy_s = window.increase("ray_textlane_session_seconds_total", lane=lane)
    ready_s = window.seconds * max(replicas, 1)
    life = window.since_start()
    return LaneObservation(
        replicas=replicas,
        settings=_settings(window, lane),
        requests=round(counted.increase(_REQUESTS, path=_PREDICT, lane=lane)),
        p50_s=counted.quantile(_LATENCY, 0.5, path=_PREDICT, lane=lane),
        p99_s=counted.quantile(_LATENCY, 0.99, path=_PREDICT, lane=lane),
        queue_p99_s=counted.quantile(_STAGE, 0.99, stage="queue", lane=lane),
        session_p50_s=counted.quantile(_STAGE, 0.5, stage="session", lane=lane),
        session_p99_s=counted.quantile(_STAGE, 0.99, stage="session", lane=lane),
        longest_p50_tokens=counted.quantile(_LONGEST, 0.5, lane=lane),
        longest_p99_tokens=counted.quantile(_LONGEST, 0.99, lane=lane),
        runs=round(counted.increase("ray_textlane_batch_rows_count", lane=lane)),
        rows=round(counted.increase("ray_textlane_rows_total", lane=lane)),
        real_tokens=round(counted.increase("ray_textlane_real_tokens_total", lane=lane)),
        padded_tokens=round(counted.increase("ray_textlane_padded_tokens_total", lane=lane)),
        # Replicas are asked in turn, so a second of one's may be told in the next window.
        busy_share=min(1.0, busy_s / ready_s) if is_live and ready_s > 0 else None,
        most_queued_texts=round(window.most("ray_textlane_queued_texts", lane=lane)),
        oldest_queued_s=window.most("ray_textlane_queue_age_seconds", lane=lane),
        starts=round(
            window.increase("ray_serve_deployment_replica_starts_total", deployment=deployment)
        ),
        slow_inits=_over(life, "initialization", deployment, SLOW_INIT_S),
        slow_startups=_over(life, "startup", deployment, SLOW_STARTUP_S),
    )


def _replicas(window: Window, deployment: str) -> int:
    healthy = window.last("ray_serve_deployment_replica_healthy", deployment=deployment)
    return sum(sample.value > 0 for sample in healthy)


def _settings(window: Window, lane: str) -> Mapping[str, float]:
    # Replicas of a deployment tell the same, but for moments in which they change.
    return {sample.labels["setting"]: sample.value for sample in window.last(_SETTING, lane=lane)}


def _over(life: Window, what: str, deployment: str, limit_s: float) -> int:
    counts = life.increase_by(
        f"ray_serve_replica_{what}_latency_ms_bucket", "le", deployment=deployment
    )
    within = {float(edge): count for edge, count in counts.items()}
    return round(within.get(float("inf"), 0.0) - within.get(limit_s * 1000.0, 0.0))


def _ingress_cpu_share(window: Window, replicas: int) -> float | None:
    # Ray adds up the processes of one name on a node.
    told = [
        sum(sample.value for sample in samples if sample.labels["Component"].endswith(":Ingress"))
        for samples in window.gauges("ray_component_cpu_percentage")
        if samples
    ]
    return max(told) / 100.0 / max(replicas, 1) if told else None


def _observe_nodes(window: Window) -> list[NodeObservation]:
    found = []
    for count in window.last("ray_node_cpu_count"):
        address = count.labels.get("ip", "")
        used = [
            sample.value / 100.0
            for samples in window.gauges("ray_node_cpu_utilization", ip=address)
            for sample in samples
        ]
        total = window.most("ray_node_mem_total", ip=address)
        available = [
            sample.value / max(total, 1.0)
            for samples in window.gauges("ray_node_mem_available", ip=address)
            for sample in samples
        ]
        lanes = [
            sample
            for sample in window.last(_SETTING, NodeAddress=address)
            if sample.labels["lane"] in LANES
        ]
        threads = [s.value for s in lanes if s.labels["setting"] == "threads_per_replica"]
        usable = [s.value for s in lanes if s.labels["setting"] == "usable_cpus"]
        found.append(
            NodeObservation(
                address=address,
                cpus=count.value,
                cpu_share=sum(used) / len(used) if used else 0.0,
                most_cpu_share=max(used, default=0.0),
                available_share=min(available, default=1.0),
                total_bytes=total,
                lane_threads=round(sum(threads)),
                usable_cpus=round(max(usable, default=0.0)),
            )
        )
    return found


def _observe_memory(window: Window) -> list[ProcessMemory]:
    told: dict[str, list[float]] = {}
    for samples in window.gauges("ray_component_uss_bytes"):
        for sample in samples:
            component = sample.labels.get("Component", "")
            if component.startswith(_REPLICA):
                place = f"{component.removeprefix(_REPLICA)} on {sample.labels.get('ip', '?')}"
                told.setdefault(place, []).append(sample.value)
    return [ProcessMemory(component=name, own_bytes=tuple(v)) for name, v in told.items()]
