"""The state of the release desk: everything that must survive a kill, and its transitions.

Pure: each function returns the next state. What answers come from follows from the state
alone (:func:`routing_table`), so a state that is stored before its table is handed out can be
lost in between without harm.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from pipeline.contract.errors import ReleaseConflictError
from serve_app.release.plan import ReleasePlan, Step
from serve_app.release.record import (
    Findings,
    Outcome,
    ReleaseEvent,
    ReleaseRecord,
    add_event,
)
from serve_app.release.routing import RoutingTable, ServedVersion


class Phase(StrEnum):
    """What a release under way is doing."""

    DEPLOYING = "deploying"
    """The candidate's lanes start; it has no traffic."""
    RUNNING = "running"
    PAUSED = "paused"
    """The weight stays as it is; the checks run on and may roll back."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release under way."""

    release_id: str
    """Also the salt of its split."""
    candidate: ServedVersion
    plan: ReleasePlan
    phase: Phase
    started_at: float
    """Seconds since 1970."""
    step: int = -1
    """Index in the plan's steps; -1 while deploying."""
    step_started_at: float = 0.0
    step_table_number: int = 0
    """The table that brought the step's weight; reports of older ones do not count."""
    events: tuple[ReleaseEvent, ...] = ()

    @property
    def weight(self) -> float:
        """Share of the keys that the candidate answers."""
        return self.plan.steps[self.step].weight if self.step >= 0 else 0.0

    @property
    def current_step(self) -> Step | None:
        """None while deploying."""
        return self.plan.steps[self.step] if self.step >= 0 else None


@dataclass(frozen=True, kw_only=True)
class ReleaseState:
    """What the desk stores."""

    base: str
    """Version of the bundle that the Serve file names."""
    stable: ServedVersion
    table_number: int = 1
    release: Release | None = None
    last: ReleaseRecord | None = None
    """The release that ended last; stored here first, so that the history cannot lack it."""


def new_state(base: ServedVersion, *, table_number: int = 1) -> ReleaseState:
    """Return the state of a service without any release.

    Args:
        base: the version that the application was built with.
        table_number: over that of any table handed out before.
    """
    return ReleaseState(base=base.version, stable=base, table_number=table_number)


def routing_table(state: ReleaseState) -> RoutingTable:
    """Return who answers in this state."""
    release = state.release
    if release is None or release.step < 0:
        return RoutingTable(number=state.table_number, stable=state.stable)
    shadow = release.plan.shadow
    return RoutingTable(
        number=state.table_number,
        stable=state.stable,
        candidate=release.candidate,
        weight=release.weight,
        salt=release.release_id,
        shadow_share=shadow.share,
        shadow_texts_per_s=shadow.texts_per_s,
        keeps_texts=shadow.keeps_texts,
    )


def start_release(
    state: ReleaseState,
    *,
    release_id: str,
    candidate: ServedVersion,
    plan: ReleasePlan,
    at: float,
) -> ReleaseState:
    """Return the state in which the candidate's lanes are to be started.

    Args:
        state: without a release.
        release_id: never used before.
        candidate: what is to earn its traffic.
        plan: how.
        at: seconds since 1970.

    Raises:
        ReleaseConflictError: a release is under way, or the candidate is the stable version.
    """
    if state.release is not None:
        raise ReleaseConflictError(
            "a release is under way",
            value=state.release.candidate.version,
            remedy="Wait for its end, or abort it.",
        )
    if candidate.version == state.stable.version:
        raise ReleaseConflictError(
            "this is the stable version already",
            value=candidate.version,
            remedy="Name another bundle.",
        )
    release = Release(
        release_id=release_id,
        candidate=candidate,
        plan=plan,
        phase=Phase.DEPLOYING,
        started_at=at,
    )
    return _with_event(
        replace(state, release=release), at=at, kind="started", reason="the candidate's lanes start"
    )


def note_deployed(state: ReleaseState, *, at: float) -> ReleaseState:
    """Return the state of the first step, now that the candidate's lanes are ready.

    Raises:
        ReleaseConflictError: no candidate is being deployed.
    """
    release = _demand(state, Phase.DEPLOYING)
    reason = f"the lanes of {release.candidate.version} are ready"
    return _enter_step(state, 0, at=at, kind="deployed", reason=reason)


def pause_release(state: ReleaseState, *, at: float) -> ReleaseState:
    """Return the state that keeps its weight until it is resumed.

    Raises:
        ReleaseConflictError: no release is running.
    """
    release = _demand(state, Phase.RUNNING)
    paused = replace(state, release=replace(release, phase=Phase.PAUSED))
    return _with_event(paused, at=at, kind="paused", reason="by hand")


def resume_release(state: ReleaseState, *, at: float) -> ReleaseState:
    """Return the state that may step again; the pause counts as dwelling.

    Raises:
        ReleaseConflictError: no release is paused.
    """
    release = _demand(state, Phase.PAUSED)
    resumed = replace(state, release=replace(release, phase=Phase.RUNNING))
    return _with_event(resumed, at=at, kind="resumed", reason="by hand")


def take_step(state: ReleaseState, *, at: float, reason: str) -> ReleaseState:
    """Return the state of the plan's next step.

    Raises:
        ReleaseConflictError: no release is running, or it is at its last step.
    """
    release = _demand(state, Phase.RUNNING)
    if release.step + 1 >= len(release.plan.steps):
        raise ReleaseConflictError("the release is at its last step", value=release.step + 1)
    return _enter_step(state, release.step + 1, at=at, kind="step", reason=reason)


def promote_release(
    state: ReleaseState, *, at: float, reason: str, findings: Findings | None = None
) -> ReleaseState:
    """Return the state whose stable version is the candidate.

    Raises:
        ReleaseConflictError: no candidate's lanes are ready.
    """
    release = _demand(state, Phase.RUNNING, Phase.PAUSED)
    ended = _end(state, Outcome.PROMOTED, at=at, reason=reason, findings=findings)
    return replace(ended, stable=release.candidate)


def end_release(
    state: ReleaseState,
    outcome: Outcome,
    *,
    at: float,
    reason: str,
    findings: Findings | None = None,
) -> ReleaseState:
    """Return the state in which the stable version answers alone.

    Raises:
        ReleaseConflictError: no release is under way.
        ValueError: the outcome is a promotion.
    """
    if outcome is Outcome.PROMOTED:
        raise ValueError("a promotion has its own transition")
    return _end(state, outcome, at=at, reason=reason, findings=findings)


def reconcile_base(state: ReleaseState, base: ServedVersion, *, at: float) -> ReleaseState:
    """Return the state for a service that was started again, maybe with another bundle.

    The same bundle changes nothing. The promoted one becomes the base, whose lanes answer from
    now on. Any other starts afresh: what was under way ends as superseded.
    """
    if base.version == state.base:
        # The folder may have moved; what stands in the Serve file holds.
        is_base = state.stable.version == base.version
        return replace(state, stable=base) if is_base else state
    if base.version == state.stable.version:
        return replace(state, base=base.version, stable=base, table_number=state.table_number + 1)
    if state.release is not None:
        reason = f"the service was started with {base.version}"
        state = end_release(state, Outcome.SUPERSEDED, at=at, reason=reason)
    return replace(state, base=base.version, stable=base, table_number=state.table_number + 1)


def _demand(state: ReleaseState, *phases: Phase) -> Release:
    release = state.release
    if release is None:
        raise ReleaseConflictError(
            "no release is under way", remedy="Start one: `textlane release start BUNDLE`."
        )
    if release.phase not in phases:
        wanted = " or ".join(phases)
        raise ReleaseConflictError(f"the release must be {wanted}", value=str(release.phase))
    return release


def _enter_step(
    state: ReleaseState, step: int, *, at: float, kind: str, reason: str
) -> ReleaseState:
    release = _demand(state, Phase.DEPLOYING, Phase.RUNNING)
    number = state.table_number + 1
    entered = replace(
        release, phase=Phase.RUNNING, step=step, step_started_at=at, step_table_number=number
    )
    moved = replace(state, release=entered, table_number=number)
    return _with_event(moved, at=at, kind=kind, reason=reason)


def _with_event(state: ReleaseState, *, at: float, kind: str, reason: str) -> ReleaseState:
    release = _demand(state, *Phase)
    event = ReleaseEvent(at=at, kind=kind, weight=release.weight, reason=reason)
    return replace(state, release=replace(release, events=add_event(release.events, event)))


def _end(
    state: ReleaseState, outcome: Outcome, *, at: float, reason: str, findings: Findings | None
) -> ReleaseState:
    release = _demand(state, *Phase)
    weight = 1.0 if outcome is Outcome.PROMOTED else 0.0
    event = ReleaseEvent(at=at, kind=str(outcome), weight=weight, reason=reason)
    record = ReleaseRecord(
        release_id=release.release_id,
        outcome=outcome,
        reason=reason,
        stable=state.stable.version,
        candidate=release.candidate.version,
        candidate_bundle=release.candidate.bundle,
        started_at=release.started_at,
        ended_at=at,
        step=release.step,
        weight=release.weight,
        findings=findings or Findings(),
        events=add_event(release.events, event),
    )
    return replace(state, release=None, last=record, table_number=state.table_number + 1)
