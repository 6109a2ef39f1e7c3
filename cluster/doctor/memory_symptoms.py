"""Symptoms of memory: exhausted, leaking, in pieces; in serving and in training."""

from collections.abc import Iterator
from itertools import pairwise

from cluster.doctor.observations import Observations, ProcessMemory
from cluster.doctor.symptom import Signs, Symptom

_AVAILABLE = 0.10
_GROWTH_BYTES = 32e6
_GROWTH_SHARE = 0.05
_ONE_RISE = 0.5
_LEAST_READINGS = 4
_TRAIN_PADDING = 0.10
_LEAST_STEPS = 20


def _find_memory_short(seen: Observations) -> Iterator[Signs]:
    for node in seen.serving.nodes if seen.serving else ():
        if node.available_share < _AVAILABLE:
            own = sum(memory.own_bytes[-1] for memory in seen.serving.memory) if seen.serving else 0
            yield Signs(
                where=f"machine {node.address}",
                figures={
                    "available": node.available_share,
                    "total, MB": node.total_bytes / 1e6,
                    "of it replicas' own, MB": own / 1e6,
                },
            )


def _find_replica_memory_grows(seen: Observations) -> Iterator[Signs]:
    for memory in seen.serving.memory if seen.serving else ():
        if _is_growing(memory):
            yield Signs(
                where=memory.component,
                figures={
                    "first, MB": memory.own_bytes[0] / 1e6,
                    "last, MB": memory.own_bytes[-1] / 1e6,
                    "readings": len(memory.own_bytes),
                },
            )


def _is_growing(memory: ProcessMemory) -> bool:
    values = memory.own_bytes
    if len(values) < _LEAST_READINGS:
        return False
    growth = values[-1] - values[0]
    # Ray looks every few seconds: equal readings in a row are one.
    rises = [later - earlier for earlier, later in pairwise(values) if later != earlier]
    is_much = growth >= max(_GROWTH_BYTES, _GROWTH_SHARE * values[0])
    return is_much and min(rises) > 0 and max(rises) <= _ONE_RISE * growth


def _find_out_of_memory(seen: Observations) -> Iterator[Signs]:
    training = seen.training
    event = training.last_event("out_of_memory") if training else None
    if training and event:
        figures: dict[str, float | str] = {"step": event.step, "event": event.message}
        if training.micro_batch is not None:
            figures["micro_batch now"] = training.micro_batch
        cure = {"rows": training.micro_batch or 1}
        yield Signs(where=training.folder, figures=figures, cure=cure)


def _find_memory_leak(seen: Observations) -> Iterator[Signs]:
    yield from _find_event(seen, "memory_leak")


def _find_fragmentation(seen: Observations) -> Iterator[Signs]:
    yield from _find_event(seen, "fragmentation")


def _find_event(seen: Observations, kind: str) -> Iterator[Signs]:
    event = seen.training.last_event(kind) if seen.training else None
    if seen.training and event:
        yield Signs(
            where=seen.training.folder, figures={"step": event.step, "event": event.message}
        )


def _find_training_padding(seen: Observations) -> Iterator[Signs]:
    training = seen.training
    if training is None or training.padding_share is None or training.steps < _LEAST_STEPS:
        return
    if training.padding_share > _TRAIN_PADDING:
        yield Signs(
            where=training.folder,
            figures={"padding": training.padding_share, "steps": training.steps},
        )


_EVENTS = "events.jsonl of the checkpoint folder, since the training was last resumed"
MEMORY = (
    Symptom(
        name="memory_short",
        area="Memory",
        seen="A machine that serves is nearly out of memory.",
        evidence="node_mem_available / node_mem_total, cgroup's where there is one",
        threshold=f"under {_AVAILABLE:g}",
        chosen="Chosen: at 0.05 Ray kills workers.",
        cure="textlane serve --set max_batch_tokens=512 --set short_replicas=1 "
        "--set long_replicas=1",
        cure_example={},
        why="A session of 8,192 padded tokens holds 500 MiB, of 512 tokens 175 "
        "(tests/perf/RESULTS.md), and each replica has its own; if their part is small, another "
        "program has the memory.",
        drill="pytest tests/unit/cluster/test_doctor_symptoms.py -k memory_short",
        find=_find_memory_short,
    ),
    Symptom(
        name="replica_memory_grows",
        area="Memory",
        seen="The memory of a replica grows from reading to reading: a leak.",
        evidence="component_uss_bytes of ServeReplica, first and last reading",
        threshold=f"{_GROWTH_BYTES / 1e6:g} MB and {_GROWTH_SHARE:g} more, in every reading, no "
        f"rise over {_ONE_RISE:g} of it, of {_LEAST_READINGS} readings or more",
        chosen="As training's (pipeline/train/memory_watch.py); a session's own memory stays as "
        "it is after a tenth of 1,500 random shapes (tests/perf/RESULTS.md).",
        cure="textlane doctor --seconds 300, to be sure; then `serve deploy FILE` with a changed "
        "line under args, which starts the replicas anew one by one",
        cure_example={},
        why="A new replica begins anew, which gives time to find what is kept; in the first "
        "minute under load growth is the arena's.",
        drill="pytest tests/unit/cluster/test_doctor_symptoms.py -k replica_memory_grows",
        find=_find_replica_memory_grows,
    ),
    Symptom(
        name="training_out_of_memory",
        area="Memory",
        seen="Training ran out of memory and went on with fewer rows in a pass, or ended.",
        evidence=f"`out_of_memory` in {_EVENTS}",
        threshold="one or more",
        chosen="By definition: each is a pass that was lost and repeated.",
        cure="textlane train --config JOB --set train.micro_batch={rows}",
        cure_example={"rows": 8},
        why="The gradient stays that of the whole batch; out_of_memory_step_N.txt in the folder "
        "has what the memory held.",
        drill="pytest tests/unit/train/test_doctor_training.py -k out_of_memory",
        find=_find_out_of_memory,
    ),
    Symptom(
        name="training_memory_leak",
        area="Memory",
        seen="Training holds more memory from step to step.",
        evidence=f"`memory_leak` in {_EVENTS}",
        threshold="one or more; pipeline/train/memory_watch.py tells it at 5 % and 32 MB of "
        "steady growth in 350 steps",
        chosen="Chosen there, with laws tested under noise.",
        cure="textlane train --config JOB, after taking out of your model what it keeps from step "
        "to step (lists of losses that are not .item(), hooks, caches)",
        cure_example={},
        why="It goes on from the last checkpoint, and a new process begins with little memory.",
        drill="pytest tests/unit/train/test_doctor_training.py -k memory_leak",
        find=_find_memory_leak,
    ),
    Symptom(
        name="training_fragmentation",
        area="Memory",
        seen="CUDA memory lies in pieces: much is reserved that no step needs.",
        evidence=f"`fragmentation` in {_EVENTS}",
        threshold="one or more; pipeline/train/memory_watch.py tells it where reserved memory "
        "grows past 1.25 times the highest peak",
        chosen="Chosen there: below it the allocator's rounding is explanation enough.",
        cure="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True textlane train --config JOB",
        cure_example={},
        why="Segments that can grow fit lengths that vary.",
        drill="pytest tests/unit/train/test_doctor_training.py -k fragmentation",
        find=_find_fragmentation,
    ),
    Symptom(
        name="training_padding",
        area="Throughput that does not rise",
        seen="A good part of the tokens that training runs is padding.",
        evidence="mean padding_share of the last steps in history.jsonl",
        threshold=f"over {_TRAIN_PADDING:g} of {_LEAST_STEPS} steps or more",
        chosen="The project's own limit (DESIGN, buckets); planned batches come to 0.6–5 %, "
        "random ones to 37 % (tests/perf/RESULTS.md).",
        cure="textlane run --config JOB --set buckets.max_padding=0.1 --set buckets.num_buckets=16 "
        "--set buckets.window_batches=128",
        cure_example={},
        why="More buckets and a wider window put rows of like lengths together; where a pass would "
        "pad more still, max_padding divides it.",
        drill="pytest tests/unit/train/test_doctor_training.py -k training_padding",
        find=_find_training_padding,
    ),
)
