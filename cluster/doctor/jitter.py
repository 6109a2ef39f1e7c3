"""Symptoms of latencies that jump, and of replicas that are slow to come."""

from collections.abc import Iterator

from cluster.doctor.observations import LaneObservation, Observations
from cluster.doctor.serving_view import SLOW_INIT_S, SLOW_STARTUP_S
from cluster.doctor.symptom import Signs, Symptom, busy_lanes

_LEAST_REQUESTS = 50
_SLOW_S = 0.1
_JUMP = 3.0
_LENGTH_JUMP = 4.0
_LONG_TOKENS = 128.0
_CALM = 0.8
_WAIT_SHARE = 0.5


def _jumps(lane: LaneObservation) -> bool:
    if lane.requests < _LEAST_REQUESTS or lane.p50_s is None or lane.p99_s is None:
        return False
    return lane.p99_s >= _SLOW_S and lane.p99_s >= _JUMP * lane.p50_s


def _has_long_texts(lane: LaneObservation) -> bool:
    p50, p99 = lane.longest_p50_tokens, lane.longest_p99_tokens
    return p50 is not None and p99 is not None and p99 > max(_LONG_TOKENS, _LENGTH_JUMP * p50)


def _figures(lane: LaneObservation) -> dict[str, float | str]:
    times = {
        "P99, s": lane.p99_s,
        "P50, s": lane.p50_s,
        "P99 of the queue, s": lane.queue_p99_s,
        "P99 of a run, s": lane.session_p99_s,
        "P50 of a run, s": lane.session_p50_s,
    }
    return {name: value for name, value in times.items() if value is not None}


def _find_long_texts(seen: Observations) -> Iterator[Signs]:
    for name, lane, serving in busy_lanes(seen):
        if name == "short" and _jumps(lane) and _has_long_texts(lane):
            cut = serving.ingress_settings.get("short_max_tokens")
            yield Signs(
                where="short lane",
                figures={
                    **_figures(lane),
                    "P50 of a run's longest text": lane.longest_p50_tokens or 0.0,
                    "P99 of a run's longest text": lane.longest_p99_tokens or 0.0,
                    "short_max_tokens": "not told" if cut is None else cut,
                },
                cure={"cut": max(16, int(cut or 256) // 4)},
            )


def _find_burst(seen: Observations) -> Iterator[Signs]:
    for name, lane, serving in busy_lanes(seen):
        busy, waited_s = lane.busy_share, lane.queue_p99_s
        if not _jumps(lane) or busy is None or waited_s is None:
            continue
        # On a full machine a session waits for the CPU, which is no time that it has.
        if max(busy, serving.cpu_share or 0.0) > _CALM:
            continue
        is_of_long_texts = name == "short" and _has_long_texts(lane)
        if waited_s >= _WAIT_SHARE * (lane.p99_s or 0.0) and not is_of_long_texts:
            queue = int(serving.ingress_settings.get("max_queued_requests", 512.0))
            yield Signs(
                where=f"{name} lane",
                figures={
                    **_figures(lane),
                    "busy share": busy,
                    "CPU share": serving.cpu_share or 0.0,
                    "most queued texts": lane.most_queued_texts,
                },
                cure={"queue": max(16, min(queue, max(lane.most_queued_texts, 64)) // 4)},
            )


def _find_cold_replica(seen: Observations) -> Iterator[Signs]:
    for name, lane, _ in busy_lanes(seen):
        if lane.starts > 0 and lane.busy_share is not None:
            yield Signs(
                where=f"{name} lane",
                figures={**_figures(lane), "starts": lane.starts, "replicas": lane.replicas},
                cure={"setting": f"{name}_replicas={max(lane.replicas, 1)}"},
            )


def _find_slow_cold_start(seen: Observations) -> Iterator[Signs]:
    if seen.serving is None:
        return
    for name, lane in seen.serving.lanes.items():
        if lane.slow_inits or lane.slow_startups:
            yield Signs(
                where=f"{name} lane",
                figures={
                    f"replicas that loaded for over {SLOW_INIT_S:g} s": lane.slow_inits,
                    f"replicas that took over {SLOW_STARTUP_S:g} s in all": lane.slow_startups,
                    "max_batch_tokens": lane.settings.get("max_batch_tokens", "not told"),
                },
            )


_GATE = (
    f"P99 {_SLOW_S:g} s or more and {_JUMP:g} times P50 or more, of {_LEAST_REQUESTS} requests "
    "or more"
)
_LATENCY = "quantiles of textlane_request_latency_seconds and textlane_stage_latency_seconds"
_GATE_CHOSEN = (
    "Measured (tests/perf/RESULTS.md): short texts at 72/s have P99 17 ms, at 128 connections "
    "1.5 times P50, so neither is over it; "
)
JITTER = (
    Symptom(
        name="long_texts",
        area="P99 that jumps",
        seen="Short texts wait behind model runs of long ones.",
        evidence=f"{_LATENCY}, of textlane_batch_longest_tokens",
        threshold=f"in the short lane {_GATE}, and P99 of the longest text of a run over "
        f"{_LONG_TOKENS:g} tokens and {_LENGTH_JUMP:g} times its P50",
        chosen=_GATE_CHOSEN
        + "a text of 128 tokens takes as long as some ten short ones (4 to 9 ms against 2).",
        cure="textlane serve --set short_max_tokens={cut}",
        cure_example={"cut": 64},
        why="Texts over the cut go to the long lane, where short ones do not wait for them.",
        drill="python tests/drills/provoke.py long_texts --bundle BUNDLE",
        find=_find_long_texts,
    ),
    Symptom(
        name="burst",
        area="P99 that jumps",
        seen="Texts come in bursts and wait, though the lane has time on the whole.",
        evidence=f"{_LATENCY}, rate(textlane_session_seconds) / replicas, node_cpu_utilization",
        threshold=f"{_GATE}, {_WAIT_SHARE:g} of it or more in the queue, busy share and CPUs at "
        f"most {_CALM:g}",
        chosen=_GATE_CHOSEN + "over that share it is no burst but too much work.",
        cure="textlane serve --set max_queued_requests={queue} --set max_texts_per_request={queue}",
        cure_example={"queue": 16},
        why="What cannot be answered soon is refused with Retry-After, so that what is answered "
        "is answered soon; more replicas answer all, if there are CPUs for them.",
        drill="python tests/drills/provoke.py burst --bundle BUNDLE",
        find=_find_burst,
    ),
    Symptom(
        name="cold_replica",
        area="P99 that jumps",
        seen="Replicas were started while requests came.",
        evidence="increase(serve_deployment_replica_starts)",
        threshold="one or more within the window",
        chosen="Chosen: a replica takes 5 to 10 s to start, takes CPU meanwhile, and was either "
        "lost or came too late.",
        cure="textlane serve --set '{setting}' --set scale_down_delay_s=600",
        cure_example={"setting": "short_replicas=[2,4]"},
        why="As many replicas as the bursts need are kept; if the number was fixed, one was lost: "
        "see its log, and the memory symptoms.",
        drill="python tests/drills/provoke.py cold_replica --bundle BUNDLE",
        find=_find_cold_replica,
    ),
    Symptom(
        name="slow_cold_start",
        area="Slow cold start",
        seen="A replica takes long from its start to its first answer.",
        evidence="serve_replica_initialization_latency_ms, serve_replica_startup_latency_ms",
        threshold=f"over {SLOW_INIT_S:g} s to load and warm up, or over {SLOW_STARTUP_S:g} s in "
        "all",
        chosen="Measured: loading and warming up MiniLM takes 0.25 to 0.5 s on 2 busy cores, all "
        "of it 2 to 10 s; both limits are edges of Ray's buckets.",
        cure="textlane serve --set max_batch_tokens=512 --set max_batch_requests=32 (textlane "
        "tune BUNDLE finds the least that is enough), with the bundle on a local disk",
        cure_example={},
        why="A replica warms up with the fullest batches that it may form; the rest is hashing the "
        "bundle, and importing.",
        drill="python tests/drills/provoke.py slow_cold_start --bundle BUNDLE",
        find=_find_slow_cold_start,
    ),
)
