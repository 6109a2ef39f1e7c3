"""The result of a run: its circumstances, its figures and what to know when reading them."""

from pydantic import BaseModel, ConfigDict

from serve_app.load.measure import Measured
from serve_app.load.plan import LoadPlan
from serve_app.load.summary import Summary, summarise

SCHEMA_VERSION = 1
_LATE_MS = 2.0
_LATE_SHARE = 0.1
_BUSY_SHARE = 0.7


class Report(BaseModel):
    """What `--json` writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int
    url: str
    started_at: str
    """UTC, ISO 8601."""
    arrivals: str
    texts: str
    seed: int
    timeout_s: float
    warm_up_s: float
    is_stopped: bool
    cpu_share: float
    """CPUs that the load generator itself used."""
    summary: Summary
    notes: tuple[str, ...]


def measured_window(plan: LoadPlan, measured: Measured) -> tuple[float, float]:
    """Return from when to when requests count, seconds since the run began.

    A stopped run ends with the stop, a trace that is over before its time with its last end.
    """
    if measured.is_stopped or plan.may_end_early:
        return plan.warm_up_s, min(plan.end_s, measured.ended_s)
    return plan.warm_up_s, plan.end_s


def build_report(plan: LoadPlan, measured: Measured, *, started_at: str) -> Report:
    """Return the report of a run that went on beyond its warm-up."""
    from_s, to_s = measured_window(plan, measured)
    summary = summarise(
        measured.samples,
        from_s=from_s,
        to_s=to_s,
        class_names=plan.texts.classes,
        unanswered_due_s=measured.unanswered_due_s,
    )
    return Report(
        schema_version=SCHEMA_VERSION,
        url=plan.target.url,
        started_at=started_at,
        arrivals=plan.arrivals,
        texts=plan.texts_from,
        seed=plan.seed,
        timeout_s=plan.timeout_s,
        warm_up_s=plan.warm_up_s,
        is_stopped=measured.is_stopped,
        cpu_share=round(measured.cpu_share, 4),
        summary=summary,
        notes=tuple(_notes(plan, measured, summary)),
    )


def _notes(plan: LoadPlan, measured: Measured, summary: Summary) -> list[str]:
    notes = []
    if measured.is_stopped:
        text = f"stopped after {summary.measured_s:g} of {plan.seconds:g} measured seconds"
        if summary.num_unanswered:
            waited_s = measured.ended_s - min(measured.unanswered_due_s)
            text += f"; {summary.num_unanswered} unanswered requests, the oldest due "
            text += f"{waited_s:.1f} s before, have no latency"
        notes.append(text)
    if plan.connections:
        notes.append(
            "a closed loop waits for the service: while it stalls, no requests are sent that "
            "would have had to wait; --rate sends them"
        )
    elif summary.answered_per_s < 0.9 * summary.due_per_s and not summary.num_shed:
        notes.append(
            "fewer answers came than were due: the service is overloaded, and latencies grow "
            "with the length of the run"
        )
    if summary.groups[0].num_timeouts:
        notes.append(
            f"a timeout counts as {plan.timeout_s:g} s of latency, which is less than the true "
            "one: values marked > are at least so long"
        )
    notes.extend(_notes_on_generator(measured, summary))
    return notes


def _notes_on_generator(measured: Measured, summary: Summary) -> list[str]:
    notes, late, latency = [], summary.begun_late_ms, summary.groups[0].latency_ms
    if late and latency and late.p99 > max(_LATE_MS, _LATE_SHARE * latency.p99):
        notes.append(
            f"the load generator was itself late (P99 {late.p99:.1f} ms), which is part of the "
            "latencies: lower the load, or run it on another machine"
        )
    if measured.cpu_share > _BUSY_SHARE:
        notes.append(
            f"the load generator used {measured.cpu_share:.0%} of a CPU and may be the limit"
        )
    if summary.num_warm_up_failed:
        notes.append(
            f"{summary.num_warm_up_failed} of {summary.num_warm_up} requests of the warm-up "
            "failed; they do not count"
        )
    return notes
