"""The desk's state, records and findings as people are shown them; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from serve_app.release.check_result import CheckResult, HardLimit
from serve_app.release.check_tracks import as_verdict, split_name
from serve_app.release.record import (
    Findings,
    GroupFigures,
    Outcome,
    ReleaseEvent,
    ReleaseRecord,
)
from serve_app.release.report import Comparison
from serve_app.release.routing import ServedVersion
from serve_app.release.state import Phase, Release, ReleaseState
from serve_app.release.status import (
    MAX_SHOWN_SAMPLES,
    CheckTrack,
    CheckView,
    Disagreement,
    DisagreementRow,
    DriftView,
    EventView,
    PastRelease,
    ReleaseHistory,
    ReleaseStatus,
    RollbackView,
    ShadowView,
    StateName,
    StepView,
    TrafficView,
    VersionView,
)

_PHASES: dict[Phase, StateName] = {
    Phase.DEPLOYING: "starting",
    Phase.RUNNING: "running",
    Phase.PAUSED: "paused",
}
_OUTCOMES: dict[Outcome, StateName] = {
    Outcome.PROMOTED: "promoted",
    Outcome.ROLLED_BACK: "rolled_back",
    Outcome.ABORTED: "aborted",
    Outcome.FAILED_TO_START: "failed_to_start",
    Outcome.SUPERSEDED: "superseded",
}
_GROUPS = ("all", "lane", "length", "label")


@dataclass(frozen=True, kw_only=True)
class LiveFigures:
    """What the desk knows beside its state."""

    findings: Findings = field(default_factory=Findings)
    """Of the release under way; that of one that ended stands in its record."""
    num_ingresses: int = 0
    traffic: Sequence[TrafficView] = ()
    shadow: ShadowView | None = None
    tracks: Sequence[CheckTrack] = ()
    drift: Sequence[DriftView] = ()


def show_state(state: ReleaseState, live: LiveFigures, *, now_s: float) -> ReleaseStatus:
    """Return the status of the release that is under way, or of the last one."""
    last, release = state.last, state.release
    seen: dict[str, Any] = {
        "now_s": now_s,
        "stable": _version(state.stable),
        "num_ingresses": live.num_ingresses,
    }
    if release is not None:
        seen |= _seen(live, live.findings, at_s=now_s)
        return ReleaseStatus(
            state=_PHASES[release.phase],
            release_id=release.release_id,
            candidate=_version(release.candidate),
            weight=release.weight,
            started_s=release.started_at,
            reason=release.events[-1].reason if release.events else "",
            step=_step(release, live.findings, now_s=now_s),
            events=_events(release.events),
            **seen,
        )
    if last is None:
        return ReleaseStatus(state="none", **seen)
    seen |= _seen(live, last.findings, at_s=last.ended_at)
    return ReleaseStatus(
        state=_OUTCOMES[last.outcome],
        release_id=last.release_id,
        candidate=VersionView(version=last.candidate, bundle=last.candidate_bundle),
        weight=1.0 if last.outcome is Outcome.PROMOTED else 0.0,
        started_s=last.started_at,
        ended_s=last.ended_at,
        reason=last.reason,
        events=_events(last.events),
        rollback=_rollback(last),
        **seen,
    )


def _seen(live: LiveFigures, findings: Findings, *, at_s: float) -> dict[str, Any]:
    return {
        "traffic": list(live.traffic),
        "shadow": live.shadow,
        "tracks": list(live.tracks),
        "drift": list(live.drift),
        "checks": _checks(findings, at_s=at_s),
        "disagreements": [_group(group) for group in findings.groups if group.kind in _GROUPS],
        "sample": _sample(findings),
    }


def show_history(records: Sequence[ReleaseRecord]) -> ReleaseHistory:
    """Return finished releases, the newest first; ``records`` are in the order of their ends."""
    return ReleaseHistory(releases=[_past(record) for record in reversed(records)])


def show_check(result: CheckResult) -> CheckView:
    """Return what one check found."""
    name, lane = split_name(result.name)
    sources = {"stable": _finite(result.stable), "candidate": _finite(result.candidate)}
    given = {key: value for key, value in sources.items() if value is not None}
    has_interval = result.low is not None or result.high is not None
    return CheckView(
        name=name,
        lane=lane,
        verdict=as_verdict(result),
        reason=result.reason,
        measure=result.measure,
        values={"measured": _finite(result.estimate), **given},
        thresholds={"measured": result.threshold},
        test=result.test,
        interval=(_finite(result.low), _finite(result.high)) if has_interval else None,
        alpha=result.alpha or None,
        is_required=result.is_required,
        samples={"stable": result.num_stable, "candidate": result.num_candidate},
        from_s=result.window_start,
        until_s=result.window_end,
    )


def _finite(value: float | None) -> float | None:
    # An interval may be open; JSON has no infinity.
    return value if value is not None and math.isfinite(value) else None


def _past(record: ReleaseRecord) -> PastRelease:
    return PastRelease(
        release_id=record.release_id,
        state=_OUTCOMES[record.outcome],
        stable=record.stable,
        candidate=VersionView(version=record.candidate, bundle=record.candidate_bundle),
        started_s=record.started_at,
        ended_s=record.ended_at,
        reason=record.reason,
        events=_events(record.events),
        rollback=_rollback(record),
    )


def _rollback(record: ReleaseRecord) -> RollbackView | None:
    if record.outcome not in (Outcome.ROLLED_BACK, Outcome.ABORTED):
        return None
    by_machine = "hard_limit" if record.findings.hard_limit else "check"
    return RollbackView(
        candidate=VersionView(version=record.candidate, bundle=record.candidate_bundle),
        stable=record.stable,
        decided_by="person" if record.outcome is Outcome.ABORTED else by_machine,
        reason=record.reason,
        at_s=record.ended_at,
        step_number=record.step + 1,
        weight=record.weight,
        checks=_checks(record.findings, at_s=record.ended_at),
        disagreements=_sample(record.findings),
    )


def _checks(findings: Findings, *, at_s: float) -> list[CheckView]:
    """Return the failed checks, then the others."""
    limit = [_hard_limit(findings.hard_limit, at_s=at_s)] if findings.hard_limit else []
    shown = [show_check(result) for result in findings.results]
    return [*limit, *sorted(shown, key=lambda check: check.verdict != "fail")]


def _hard_limit(limit: HardLimit, *, at_s: float) -> CheckView:
    return CheckView(
        name=limit.name,
        verdict="fail",
        reason=limit.reason,
        values={"value": limit.value},
        thresholds={"value": limit.threshold},
        test="hard limit, no statistics",
        from_s=at_s - limit.window_s,
        until_s=at_s,
    )


def _step(release: Release, findings: Findings, *, now_s: float) -> StepView | None:
    step = release.current_step
    if step is None:
        return None
    waits = [
        result.name
        for result in findings.results
        if result.is_required and as_verdict(result) != "pass"
    ]
    return StepView(
        number=release.step + 1,
        num_steps=len(release.plan.steps),
        weight=step.weight,
        dwell_s=step.dwell_s,
        remaining_s=max(0.0, release.step_started_at + step.dwell_s - now_s),
        waits_for=waits,
    )


def _group(group: GroupFigures) -> DisagreementRow:
    return DisagreementRow.model_validate(
        {
            "by": group.kind,
            "group": group.name,
            "num_compared": group.num_comparisons,
            "num_flips": group.num_flips,
            "num_shifts": group.num_shifts,
            "num_failed": group.num_failures,
        }
    )


def _sample(findings: Findings) -> list[Disagreement]:
    return [_disagreement(one) for one in findings.disagreements[:MAX_SHOWN_SAMPLES]]


def _disagreement(one: Comparison) -> Disagreement:
    return Disagreement(
        request_id=one.request_id,
        lane=one.lane,
        num_tokens=one.num_tokens,
        stable_label=one.stable_label,
        candidate_label="" if one.candidate_failed else one.candidate_label,
        stable_score=one.stable_score,
        candidate_score=one.candidate_score,
        shift=one.shift,
        text=one.text,
    )


def _events(events: Sequence[ReleaseEvent]) -> list[EventView]:
    return [
        EventView(at_s=event.at, kind=event.kind, weight=event.weight, reason=event.reason)
        for event in events
    ]


def _version(version: ServedVersion) -> VersionView:
    return VersionView(version=version.version, bundle=version.bundle)
