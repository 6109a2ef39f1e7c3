"""The decision: one pure look at state, evidence and clock each second."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.contract.profile import TrainingProfile
from serve_app.release.check_result import CheckResult, HardLimit, Verdict
from serve_app.release.checks import run_checks
from serve_app.release.drift import DriftFinding, drift_warnings, find_drift
from serve_app.release.evidence import Evidence
from serve_app.release.hard_limits import find_hard_limit
from serve_app.release.record import Findings, GroupFigures, Outcome
from serve_app.release.state import (
    Phase,
    Release,
    ReleaseState,
    end_release,
    promote_release,
    take_step,
)

Profiles = Mapping[str, TrainingProfile]
"""Version → what its bundle stored."""


_HINTS = {
    "flips": "a model that was trained anew is meant to differ: its plan says by how much, with "
    "thresholds.max_flip_rate",
}
"""Remedies where a failed check may be just what was wanted."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one look led to."""

    state: ReleaseState
    """The next one; the same object if nothing changes, which then need not be stored."""
    results: tuple[CheckResult, ...] = ()
    hard_limit: HardLimit | None = None


def decide(
    state: ReleaseState, evidence: Evidence | None, *, now: float, profiles: Profiles | None = None
) -> Decision:
    """Return the next state: rolled back, a step further, promoted, or the same.

    Args:
        state: the stored one.
        evidence: of the state's release and step; not changed. None: there is none yet.
        now: seconds since 1970.
        profiles: of the bundles, for the warnings of drift in a record.

    Raises:
        ValueError: the evidence is of another release or step.
    """
    release = state.release
    if release is None or release.step < 0 or evidence is None:
        return Decision(state=state)
    if (evidence.release_id, evidence.step) != (release.release_id, release.step):
        raise ValueError(f"evidence is of {evidence.release_id}, step {evidence.step}")
    limit = find_hard_limit(release.plan.hard_limits, evidence, now=now)
    results = run_checks(release.plan, evidence, now=now)
    findings = collect_findings(evidence, results, hard_limit=limit, profiles=profiles)
    reason = limit.reason if limit else "; ".join(map(_why_failed, findings.failed))
    if reason:
        state = end_release(state, Outcome.ROLLED_BACK, at=now, reason=reason, findings=findings)
    elif is_step_due(release, results, now=now):
        state = _go_on(state, release, findings, now=now)
    return Decision(state=state, results=results, hard_limit=limit)


def _why_failed(result: CheckResult) -> str:
    hint = _HINTS.get(result.name)
    return f"{result.name}: {result.reason}" + (f" ({hint})" if hint else "")


def is_step_due(release: Release, results: tuple[CheckResult, ...], *, now: float) -> bool:
    """Return whether the dwell is over, nobody paused, and every required check passes."""
    step = release.current_step
    if release.phase is not Phase.RUNNING or step is None or not results:
        return False
    return now - release.step_started_at >= step.dwell_s and not checks_waited_for(results)


def checks_waited_for(results: tuple[CheckResult, ...]) -> tuple[str, ...]:
    """Return the names of the required checks that do not pass."""
    return tuple(
        result.name
        for result in results
        if result.is_required and result.verdict is not Verdict.PASS
    )


def collect_findings(
    evidence: Evidence,
    results: tuple[CheckResult, ...],
    *,
    hard_limit: HardLimit | None = None,
    profiles: Profiles | None = None,
) -> Findings:
    """Return what a record keeps of the evidence."""
    return Findings(
        results=results,
        hard_limit=hard_limit,
        groups=group_figures(evidence),
        disagreements=tuple(evidence.disagreements),
        warnings=drift_warnings(measure_drift(evidence, profiles or {})),
    )


def group_figures(evidence: Evidence) -> tuple[GroupFigures, ...]:
    """Return the compared answers of all groups; in each kind the most disagreements first."""
    figures = [
        GroupFigures(
            kind=kind,
            name=name,
            num_comparisons=tally.num_comparisons,
            num_flips=tally.num_flips,
            num_shifts=tally.num_shifts,
            num_failures=tally.num_failures,
        )
        for kind, groups in evidence.comparisons.items()
        for name, tally in groups.items()
    ]
    return tuple(sorted(figures, key=lambda one: (one.kind, -one.num_flips - one.num_failures)))


def measure_drift(evidence: Evidence, profiles: Profiles) -> tuple[DriftFinding, ...]:
    """Return the drift of every version whose bundle's profile is known."""
    return tuple(
        finding
        for version, tally in evidence.profiles.items()
        if version in profiles
        for finding in find_drift(tally.total(), profiles[version])
    )


def _go_on(
    state: ReleaseState, release: Release, findings: Findings, *, now: float
) -> ReleaseState:
    required = [result.name for result in findings.results if result.is_required]
    reason = f"passed {', '.join(required)} at weight {release.weight:g}"
    if release.step + 1 < len(release.plan.steps):
        return take_step(state, at=now, reason=reason)
    return promote_release(state, at=now, reason=reason, findings=findings)
