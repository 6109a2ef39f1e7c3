"""Symptoms of settings that cannot be right, and of a service that is not ready."""

from collections.abc import Iterator

from cluster.doctor.observations import Observations
from cluster.doctor.symptom import Signs, Symptom

_THREADS_PER_CPU = 2.0
_LEAST_REQUESTS = 50
_FAILED = 0.01
_FAULTS = ("internal_error", "inference_failed", "deadline_exceeded", "not_ready")
"""Outcomes that are the service's fault; 429 has a symptom of its own."""


def _find_not_ready(seen: Observations) -> Iterator[Signs]:
    if seen.is_ready is False:
        yield Signs(where="/readyz", figures={"answer": seen.ready_answer})


def _find_requests_fail(seen: Observations) -> Iterator[Signs]:
    serving = seen.serving
    if serving is None or serving.num_requests < _LEAST_REQUESTS:
        return
    failed = {name: count for name, count in serving.outcomes.items() if name in _FAULTS}
    if sum(failed.values()) / serving.num_requests > _FAILED:
        share = sum(failed.values()) / serving.num_requests
        yield Signs(where="ingress", figures={"failed share": share, **failed})


def _find_haproxy_off(seen: Observations) -> Iterator[Signs]:
    yield from _find_off(seen, "haproxy")


def _find_throughput_off(seen: Observations) -> Iterator[Signs]:
    yield from _find_off(seen, "throughput_optimized")


def _find_off(seen: Observations, setting: str) -> Iterator[Signs]:
    told = seen.serving.ingress_settings.get(setting) if seen.serving else None
    if told == 0.0:
        yield Signs(where="Ray Serve", figures={setting: told})


def _find_threads_oversubscribed(seen: Observations) -> Iterator[Signs]:
    for node in seen.serving.nodes if seen.serving else ():
        if node.usable_cpus and node.lane_threads > _THREADS_PER_CPU * node.usable_cpus:
            yield Signs(
                where=f"machine {node.address}",
                figures={
                    "threads of all lane replicas": node.lane_threads,
                    "usable CPUs": node.usable_cpus,
                },
                cure={"threads": max(1, node.usable_cpus // 2)},
            )


WRONG_SETTINGS = (
    Symptom(
        name="not_ready",
        area="Failing requests",
        seen="The service answers that it is not ready, or not at all.",
        evidence="GET /readyz",
        threshold="another answer than 200 within 5 s",
        chosen="By definition: load balancers go by the same answer.",
        cure="textlane serve --bundle BUNDLE, or look into the logs whose folder it printed",
        cure_example={},
        why="A lane is starting, draining or lost; Ray starts lost replicas again within seconds.",
        drill="pytest tests/unit/cluster/test_doctor_command.py -k not_ready",
        find=_find_not_ready,
    ),
    Symptom(
        name="requests_fail",
        area="Failing requests",
        seen="Requests fail by the fault of the service: 500, 503 or 504.",
        evidence="textlane_requests by outcome: " + ", ".join(_FAULTS),
        threshold=f"over {_FAILED:g} of {_LEAST_REQUESTS} requests or more",
        chosen="Chosen: a lost replica fails fewer, since its texts are asked of another one.",
        cure="grep -h ERROR LOGS/serve/*Ingress*, LOGS being what textlane serve prints; it has "
        "the request, and for 500 the traceback",
        cure_example={},
        why="inference_failed is the text's or the model's, deadline_exceeded a queue that is too "
        "long (max_queued_requests), not_ready a lane without replicas.",
        drill="pytest tests/unit/cluster/test_doctor_symptoms.py -k requests_fail",
        find=_find_requests_fail,
    ),
    Symptom(
        name="haproxy_off",
        area="Wrong settings",
        seen="Requests go through Ray Serve's own proxy.",
        evidence='textlane_setting{setting="haproxy"}',
        threshold="0",
        chosen="Measured by the drill (2 cores, short texts, 32 connections): 686 texts/s with "
        "it, 232 without.",
        cure="textlane serve without --no-haproxy; on a cluster of your own start Ray with "
        "RAY_SERVE_ENABLE_HA_PROXY=1",
        cure_example={},
        why="HAProxy hands requests to the ingress replicas directly; Ray's proxy reads and sends "
        "each of them once more, in Python.",
        drill="python tests/drills/provoke.py haproxy_off --bundle BUNDLE",
        find=_find_haproxy_off,
    ),
    Symptom(
        name="throughput_off",
        area="Wrong settings",
        seen="Ray Serve runs without its settings for throughput.",
        evidence='textlane_setting{setting="throughput_optimized"}',
        threshold="0",
        chosen="Measured by the drill (2 cores, short texts, 32 connections): 698 texts/s with "
        "it, 549 without.",
        cure="RAY_SERVE_THROUGHPUT_OPTIMIZED=1 textlane serve; on a cluster of your own start Ray "
        "with it",
        cure_example={},
        why="With it a replica's code and its router share an event loop, and calls go by gRPC.",
        drill="python tests/drills/provoke.py throughput_off --bundle BUNDLE",
        find=_find_throughput_off,
    ),
    Symptom(
        name="threads_oversubscribed",
        area="Wrong settings",
        seen="The lanes' sessions have far more threads than there are CPUs.",
        evidence='sum of textlane_setting{setting="threads_per_replica"} on a machine, '
        'textlane_setting{setting="usable_cpus"}',
        threshold=f"over {_THREADS_PER_CPU:g} threads for each CPU that cgroup and affinity leave",
        chosen="Measured: with 2 for each CPU 422 texts/s, with 1 440 (serve_app/README.md); by "
        "the drill 475 with 8, 678 with 1.",
        cure="textlane serve --set threads_per_replica={threads}",
        cure_example={"threads": 1},
        why="Threads without a CPU take it from those that the others wait for.",
        drill="python tests/drills/provoke.py threads_oversubscribed --bundle BUNDLE",
        find=_find_threads_oversubscribed,
    ),
)
