"""Figures of a run: percentiles, throughput and failures, from its samples alone."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from serve_app.load.record import Sample

PERCENTILES = (50, 90, 95, 99)


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Percentiles(_Figures):
    """Milliseconds that so many per cent of the values do not exceed."""

    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Group(_Figures):
    """Requests of one kind."""

    by: Literal["all", "text", "lane"]
    """``text``: the kind of text sent; ``lane``: where the service says it was answered."""
    name: str
    num_due: int
    """Requests due in the measured time; of a lane only answered ones are known."""
    num_answered: int
    num_timeouts: int
    latency_ms: Percentiles | None
    """From when they were due to the last byte. A timeout counts with the time waited, which
    is less than the true one; other failures do not count."""


class FailureCount(_Figures):
    """Requests that failed in one way."""

    kind: str
    status: int | None
    count: int
    example: str
    """What the service said the first time."""


class Second(_Figures):
    """What happened in one second of the measured time."""

    start_s: int
    """Since the measured time began."""
    num_due: int
    num_answered: int
    """Answers that came in it."""
    num_shed: int
    num_failed: int


class Summary(_Figures):
    """What was measured."""

    measured_s: float
    num_due: int
    num_answered: int
    num_shed: int
    """Answered 429: the service was full and said so."""
    num_failed: int
    num_unanswered: int
    """Still under way when the run was stopped."""
    due_per_s: float
    answered_per_s: float
    """Answers that came within the measured time, whenever their requests were due."""
    begun_late_ms: Percentiles | None
    """How late the load generator itself was; part of the latencies."""
    groups: tuple[Group, ...]
    failures: tuple[FailureCount, ...]
    """Most frequent first; 429 among them."""
    seconds: tuple[Second, ...]
    num_warm_up: int
    """Requests due before the measured time; they count nowhere else."""
    num_warm_up_failed: int


def percentiles_ms(values_s: Sequence[float]) -> Percentiles | None:
    """Return percentiles of seconds as milliseconds, by nearest rank; None of nothing.

    Each is one of the values: p is the ``ceil(p/100 · n)``-th smallest. Of 1 to 10 s, P50 is
    5,000 and P90 9,000 ms.
    """
    if not values_s:
        return None
    ordered = sorted(values_s)
    ranks = {f"p{p}": ordered[math.ceil(p * len(ordered) / 100) - 1] for p in PERCENTILES}
    shown = {name: round(value * 1000.0, 3) for name, value in ranks.items()}
    return Percentiles(**shown, max=round(ordered[-1] * 1000.0, 3))


def measured_samples(samples: Sequence[Sample], *, from_s: float, to_s: float) -> list[Sample]:
    """Return the samples that were due in ``[from_s, to_s)``."""
    return [sample for sample in samples if from_s <= sample.due_s < to_s]


def summarise(
    samples: Sequence[Sample],
    *,
    from_s: float,
    to_s: float,
    class_names: Sequence[str],
    unanswered_due_s: Sequence[float] = (),
) -> Summary:
    """Return the figures of the requests due in ``[from_s, to_s)``.

    Args:
        samples: of the whole run, in any order.
        from_s: end of the warm-up, seconds since the run began.
        to_s: end of the measured time, later than ``from_s``.
        class_names: of the kinds of text.
        unanswered_due_s: when requests were due that have no end yet.
    """
    measured = measured_samples(samples, from_s=from_s, to_s=to_s)
    warm_up = [sample for sample in samples if sample.due_s < from_s]
    num_unanswered = sum(from_s <= due < to_s for due in unanswered_due_s)
    in_time = [sample for sample in samples if from_s <= sample.done_s < to_s]
    outcomes = Counter(sample.outcome for sample in measured)
    num_due = len(measured) + num_unanswered
    num_in_time = sum(sample.failure is None for sample in in_time)
    return Summary(
        measured_s=round(to_s - from_s, 3),
        num_due=num_due,
        num_answered=outcomes["answered"],
        num_shed=outcomes["shed"],
        num_failed=outcomes["failed"],
        num_unanswered=num_unanswered,
        due_per_s=round(num_due / (to_s - from_s), 3),
        answered_per_s=round(num_in_time / (to_s - from_s), 3),
        begun_late_ms=percentiles_ms([sample.begun_s - sample.due_s for sample in measured]),
        groups=_groups(measured, class_names, num_unanswered),
        failures=_count_failures(measured),
        seconds=_by_second(measured, in_time, from_s=from_s, to_s=to_s),
        num_warm_up=len(warm_up),
        num_warm_up_failed=sum(sample.failure is not None for sample in warm_up),
    )


def _groups(
    samples: Sequence[Sample], class_names: Sequence[str], num_unanswered: int
) -> tuple[Group, ...]:
    whole = _group(samples, by="all", name="all")
    groups = [whole.model_copy(update={"num_due": whole.num_due + num_unanswered})]
    if len(class_names) > 1:
        for index, name in enumerate(class_names):
            chosen = [sample for sample in samples if sample.text_class == index]
            groups.append(_group(chosen, by="text", name=name))
    for lane in sorted({sample.lane for sample in samples if sample.lane}):
        chosen = [sample for sample in samples if sample.lane == lane]
        groups.append(_group(chosen, by="lane", name=lane))
    return tuple(groups)


def _group(samples: Sequence[Sample], *, by: Literal["all", "text", "lane"], name: str) -> Group:
    waited = [sample for sample in samples if sample.failure is None or sample.is_timeout]
    return Group(
        by=by,
        name=name,
        num_due=len(samples),
        num_answered=sum(sample.failure is None for sample in samples),
        num_timeouts=sum(sample.is_timeout for sample in samples),
        latency_ms=percentiles_ms([sample.latency_s for sample in waited]),
    )


def _count_failures(samples: Sequence[Sample]) -> tuple[FailureCount, ...]:
    failures = [sample.failure for sample in samples if sample.failure]
    counts = Counter(failure.kind for failure in failures)
    first = {failure.kind: failure for failure in reversed(failures)}
    return tuple(
        FailureCount(kind=kind, status=first[kind].status, count=count, example=first[kind].message)
        for kind, count in counts.most_common()
    )


def _by_second(
    due: Sequence[Sample], done: Sequence[Sample], *, from_s: float, to_s: float
) -> tuple[Second, ...]:
    num_due = Counter(int(sample.due_s - from_s) for sample in due)
    ends = Counter((int(sample.done_s - from_s), sample.outcome) for sample in done)
    return tuple(
        Second(
            start_s=start,
            num_due=num_due[start],
            num_answered=ends[start, "answered"],
            num_shed=ends[start, "shed"],
            num_failed=ends[start, "failed"],
        )
        for start in range(math.ceil(to_s - from_s))
    )
