"""Symptoms of a throughput that does not rise, and of wasted work."""

from collections.abc import Iterator

from cluster.doctor.observations import Observations
from cluster.doctor.symptom import Signs, Symptom, busy_lanes

_LEAST_ROWS = 200
"""Fewer say little about batches; chosen."""
_LEAST_REQUESTS = 50
_WAITING = 8
_FEW_ROWS = 2.0
_FEW_TOKENS = 128.0
_PADDING = 0.20
_BUSY = 0.9
_IDLE_LANES = 0.7
_IDLE_CPUS = 0.75
_FULL_CPUS = 0.85
_OLD_S = 0.5
_DOOR = 0.85
_REFUSED = 0.01


def _find_batch_not_forming(seen: Observations) -> Iterator[Signs]:
    for name, lane, _ in busy_lanes(seen, least_rows=_LEAST_ROWS):
        rows, tokens = lane.rows / max(lane.runs, 1), lane.padded_tokens / max(lane.runs, 1)
        if rows < _FEW_ROWS and tokens < _FEW_TOKENS and lane.most_queued_texts >= _WAITING:
            yield Signs(
                where=f"{name} lane",
                figures={
                    "rows of a run": rows,
                    "tokens of a run": tokens,
                    "most queued texts": lane.most_queued_texts,
                    "max_batch_requests": lane.settings.get("max_batch_requests", "not told"),
                },
                cure={"deployment": f"{name.capitalize()}Lane"},
            )


def _find_padding_waste(seen: Observations) -> Iterator[Signs]:
    for name, lane, _ in busy_lanes(seen, least_rows=_LEAST_ROWS):
        padding = 1.0 - lane.real_tokens / max(lane.padded_tokens, 1)
        if padding > _PADDING:
            yield Signs(
                where=f"{name} lane",
                figures={
                    "padding": padding,
                    "real tokens": lane.real_tokens,
                    "padded tokens": lane.padded_tokens,
                    "window_batches": lane.settings.get("window_batches", "not told"),
                    "max_batch_requests": lane.settings.get("max_batch_requests", "not told"),
                },
                cure={"deployment": f"{name.capitalize()}Lane"},
            )


def _find_too_few_threads(seen: Observations) -> Iterator[Signs]:
    for name, lane, serving in busy_lanes(seen):
        share, threads = serving.most_cpu_share, lane.settings.get("threads_per_replica")
        usable = lane.settings.get("usable_cpus", 0.0)
        is_busy = lane.busy_share is not None and lane.busy_share >= _BUSY
        if share is None or threads is None or not is_busy:
            continue
        if share > _IDLE_CPUS or threads >= usable:
            continue
        yield Signs(
            where=f"{name} lane",
            figures={
                "busy share": lane.busy_share or 0.0,
                "CPU share": share,
                "threads_per_replica": threads,
                "usable_cpus": usable,
            },
            cure={"threads": max(int(threads) + 1, min(int(usable), 2 * int(threads)))},
        )


def _find_machine_full(seen: Observations) -> Iterator[Signs]:
    for name, lane, serving in busy_lanes(seen):
        share, busy = serving.most_cpu_share or 0.0, lane.busy_share or 0.0
        if share >= _FULL_CPUS and busy >= _BUSY and lane.oldest_queued_s >= _OLD_S:
            yield Signs(
                where=f"{name} lane",
                figures={
                    "busy share": busy,
                    "CPU share": share,
                    "oldest queued, s": lane.oldest_queued_s,
                },
            )


def _find_front_door(seen: Observations) -> Iterator[Signs]:
    serving = seen.serving
    if serving is None or serving.num_requests < _LEAST_REQUESTS:
        return
    share = serving.ingress_cpu_share
    busiest = max((lane.busy_share or 0.0 for lane in serving.lanes.values()), default=0.0)
    if share is not None and share >= _DOOR and busiest < _IDLE_LANES:
        yield Signs(
            where="ingress",
            figures={
                "CPU of an ingress replica": share,
                "busy share of the busiest lane": busiest,
                "ingress replicas": serving.ingress_replicas,
            },
            cure={"replicas": serving.ingress_replicas + 1},
        )


def _find_queue_refuses(seen: Observations) -> Iterator[Signs]:
    serving = seen.serving
    if serving is None or serving.num_requests < _LEAST_REQUESTS:
        return
    refused = serving.outcomes.get("overloaded", 0)
    if refused / serving.num_requests <= _REFUSED:
        return
    name, lane = max(serving.lanes.items(), key=lambda item: item[1].busy_share or 0.0)
    queue = serving.ingress_settings.get("max_queued_requests")
    figures: dict[str, float | str] = {
        "refused share": refused / serving.num_requests,
        "refused": refused,
        "busy share of the busiest lane": lane.busy_share or 0.0,
        "max_queued_requests": "not told" if queue is None else queue,
    }
    is_full = (lane.busy_share or 0.0) >= _BUSY
    more = f"{name}_replicas={lane.replicas + 1}"
    wider = f"max_queued_requests={max(512, 2 * int(queue or 256))}"
    yield Signs(where="ingress", figures=figures, cure={"setting": more if is_full else wider})


_LIVE = "or, without a restart, `user_config` of {deployment} in the Serve file and `serve deploy`"
THROUGHPUT = (
    Symptom(
        name="batch_not_forming",
        area="Throughput that does not rise",
        seen="Texts wait, and yet each model run takes hardly more than one of them.",
        evidence="textlane_rows / runs, textlane_padded_tokens / runs, textlane_queued_texts",
        threshold=f"under {_FEW_ROWS:g} rows and {_FEW_TOKENS:g} tokens a run while "
        f"{_WAITING} or more texts wait, of {_LEAST_ROWS} rows or more",
        chosen="Chosen: a quarter of the default budget of 512 tokens, over which more rows "
        "gain little on a CPU; a long text alone is over it.",
        cure=f"textlane serve --set max_batch_requests=32 --set max_batch_tokens=512 ({_LIVE})",
        cure_example={"deployment": "ShortLane"},
        why="A run has a price of its own, which the rows of a batch share.",
        drill="python tests/drills/provoke.py batch_not_forming --bundle BUNDLE",
        find=_find_batch_not_forming,
    ),
    Symptom(
        name="padding_waste",
        area="Throughput that does not rise",
        seen="A good part of the tokens that the model runs is padding.",
        evidence="1 - textlane_real_tokens / textlane_padded_tokens",
        threshold=f"over {_PADDING:g} of {_LEAST_ROWS} rows or more",
        chosen="Measured (tests/perf/RESULTS.md, and the drill): cut as serving does, windows of "
        "32 and more texts come to 2–13 % padding, first come to 49–85 %.",
        cure=f"textlane serve --set window_batches=4 --set max_batch_requests=32 ({_LIVE})",
        cure_example={"deployment": "ShortLane"},
        why="The more waiting texts are sorted together, the more alike are those of one batch.",
        drill="python tests/drills/provoke.py padding_waste --bundle BUNDLE",
        find=_find_padding_waste,
    ),
    Symptom(
        name="too_few_threads",
        area="Throughput that does not rise",
        seen="A lane's session runs all the time, and CPUs of the machine are idle.",
        evidence="rate(textlane_session_seconds) / replicas, node_cpu_utilization",
        threshold=f"busy share {_BUSY:g} or more, at most {_IDLE_CPUS:g} of the CPUs in use at the "
        "busiest reading, and fewer threads than CPUs",
        chosen="Chosen: one idle CPU of four, or half of one of two.",
        cure="textlane tune BUNDLE, which measures the best number, or by hand textlane serve "
        "--set threads_per_replica={threads}",
        cure_example={"threads": 2},
        why="The session cannot use CPUs for which it has no threads; where two CPUs share a core "
        "more threads may gain nothing, which tune tells.",
        drill="python tests/drills/provoke.py too_few_threads --bundle BUNDLE",
        find=_find_too_few_threads,
    ),
    Symptom(
        name="machine_full",
        area="Throughput that does not rise",
        seen="Texts wait because the machine has no CPU left.",
        evidence="rate(textlane_session_seconds) / replicas, node_cpu_utilization, "
        "textlane_queue_age_seconds",
        threshold=f"busy share {_BUSY:g}, CPUs {_FULL_CPUS:g} in use and a text that waits "
        f"{_OLD_S:g} s, or more",
        chosen="Chosen: at 128 connections, where 2 cores give their most, the median of a mixed "
        "load's short texts is 0.28 s (tests/perf/RESULTS.md).",
        cure="textlane export --config JOB --set export.int8=true for a faster model, or add a "
        "machine and textlane serve --set short_replicas=[1,4]",
        cure_example={},
        why="No setting finds CPUs that are not there; fewer texts in hand "
        "(max_queued_requests) at least keep the wait short.",
        drill="python tests/drills/provoke.py machine_full --bundle BUNDLE",
        find=_find_machine_full,
    ),
    Symptom(
        name="front_door",
        area="Throughput that does not rise",
        seen="The ingress uses up its CPU while the lanes have time.",
        evidence="component_cpu_percentage of ServeReplica:…:Ingress / ingress replicas, "
        "rate(textlane_session_seconds) / replicas",
        threshold=f"{_DOOR:g} of a CPU or more for each ingress replica, no lane busy "
        f"{_IDLE_LANES:g} of the time",
        chosen="Chosen: an ingress is one process with one event loop and cannot use over 1 CPU.",
        cure="textlane serve --set ingress_replicas={replicas}",
        cure_example={"replicas": 2},
        why="Each ingress replica reads and tokenises on a CPU of its own, if there is one.",
        drill="python tests/drills/provoke.py front_door",
        find=_find_front_door,
    ),
    Symptom(
        name="queue_refuses",
        area="Throughput that does not rise",
        seen="Requests are refused with 429.",
        evidence='textlane_requests{outcome="overloaded"} / textlane_requests',
        threshold=f"over {_REFUSED:g} of {_LEAST_REQUESTS} requests or more",
        chosen="Chosen: a client that backs off sees an occasional 429 as a delay.",
        cure="textlane serve --set {setting}",
        cure_example={"setting": "max_queued_requests=512"},
        why="With idle lanes the queue is too short for the burst; busy ones are too few.",
        drill="python tests/drills/provoke.py queue_refuses --bundle BUNDLE",
        find=_find_queue_refuses,
    ),
)
