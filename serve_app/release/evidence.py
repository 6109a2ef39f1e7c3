"""What the ingresses' reports add up to in one step of a release: everything a check looks at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from serve_app.release.plan import FAIREST_WEIGHT
from serve_app.release.plausible import find_fault
from serve_app.release.report import Comparison, Feedback, IngressReport, LiveProfile
from serve_app.release.split import key_point
from serve_app.release.state import Release
from serve_app.release.tallies import (
    ComparisonTally,
    FeedbackTally,
    LaneTally,
    PairTally,
    ProfileTally,
    bounded_name,
    empty_profile,
    is_flip,
)

Role = Literal["stable", "candidate"]
ROLES: tuple[Role, ...] = ("stable", "candidate")
_MOST_REPORTERS = 1_000
_MOST_MOMENTS = 100_000
_MOST_FED_BACK = 10_000


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One report in the hard limits' view."""

    at: float
    stable_requests: int
    stable_errors: int
    candidate_requests: int
    candidate_errors: int
    unreachable: int
    """Calls that found no replica of the candidate."""


@dataclass(kw_only=True)
class Baseline:
    """The stable version's requests in an earlier step."""

    step: int
    stable_share: float
    lanes: dict[str, LaneTally]


@dataclass(kw_only=True)
class Evidence:
    """Reports since a step began. Mutable: the desk alone holds it."""

    release_id: str
    stable: str
    """Versions."""
    candidate: str
    shift_tolerance: float
    typical_ratio: float
    """The plan's ``max_typical_ratio``."""
    length_edges: tuple[int, ...]
    """Of the stable version's bundle."""
    kept_disagreements: int = 0
    settle_s: float = 0.0
    look_back_s: float = 60.0
    """What the hard limits look back at most."""
    step: int = -1
    weight: float = 0.0
    table_number: int = 0
    window_start: float = 0.0
    """Seconds since 1970; what arrives before is not counted."""
    window_end: float = 0.0
    lanes: dict[Role, dict[str, LaneTally]] = field(default_factory=dict)
    pairs: dict[str, PairTally] = field(default_factory=dict)
    comparisons: dict[str, dict[str, ComparisonTally]] = field(default_factory=dict)
    """``all``, ``lane``, ``length`` or ``label`` → name → counts."""
    num_dropped: int = 0
    disagreements: list[Comparison] = field(default_factory=list)
    """A uniform sample."""
    num_disagreements: int = 0
    feedback: dict[Role, FeedbackTally] = field(default_factory=dict)
    fed_back: dict[str, bool] = field(default_factory=dict)
    """Requests whose label has come, so that none counts twice; the last 10,000."""
    profiles: dict[str, ProfileTally] = field(default_factory=dict)
    baselines: list[Baseline] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)
    """Reporter → its last report."""
    heard_at: dict[str, float] = field(default_factory=dict)
    fault_at: float | None = None
    fault: str = ""

    def begin_step(self, *, step: int, weight: float, table_number: int, at: float) -> None:
        """Forget the step before, but for what may be a later step's baseline."""
        if self.step >= 0:
            lanes = self.lanes.get("stable", {})
            share = 1.0 - self.weight
            self.baselines.append(Baseline(step=self.step, stable_share=share, lanes=lanes))
        self.step, self.weight, self.table_number = step, weight, table_number
        self.window_start = self.window_end = at + self.settle_s
        self.lanes = {role: {} for role in ROLES}
        self.feedback = {role: FeedbackTally() for role in ROLES}
        self.pairs, self.comparisons, self.num_dropped = {}, {}, 0
        self.disagreements, self.num_disagreements = [], 0

    def follow(self, release: Release) -> None:
        """Begin the release's step anew if it is another than this evidence's."""
        if release.step >= 0 and release.step != self.step:
            self.begin_step(
                step=release.step,
                weight=release.weight,
                table_number=release.step_table_number,
                at=release.step_started_at,
            )

    def add(self, report: IngressReport, *, at: float) -> bool:
        """Count a report.

        Args:
            report: of an ingress.
            at: when it came, seconds since 1970.

        Returns:
            Whether it was counted: not one that came already nor one that contradicts itself,
            which is a fault of the source.
        """
        if report.sequence <= self.sequences.get(report.reporter, -1):
            return False
        fault = find_fault(report)
        if fault:
            self.note_fault(f"{report.reporter}: {fault}", at=at)
            return False
        self._note_reporter(report, at)
        self._add_moment(report, at)
        for profile in report.profiles:
            self._add_profile(profile)
        if self.step < 0 or at < self.window_start or report.table_number < self.table_number:
            return True
        self.window_end = at
        self._add_cells(report)
        for item in report.comparisons:
            self._add_comparison(item)
        self.num_dropped += report.num_dropped_comparisons
        for feedback in report.feedback:
            self._add_feedback(feedback)
        return True

    def note_fault(self, fault: str, *, at: float) -> None:
        """Note that figures are missing or wrong: no check says anything for a while."""
        self.fault, self.fault_at = fault, at

    def note_restart(self, *, at: float) -> None:
        """Note that a replica of the candidate died."""
        self.restarts = [one for one in self.restarts if one > at - self.look_back_s]
        self.restarts.append(at)

    @property
    def last_heard_at(self) -> float | None:
        """When the last report of any ingress came."""
        return max(self.heard_at.values(), default=None)

    def stable_lanes(self) -> tuple[Mapping[str, LaneTally], str]:
        """Return the stable version's requests to compare with, and what they are.

        Of the same window, while stable has at least the candidate's share. Beyond that its
        lanes have less to do than the candidate's and would seem faster: then those of the
        step in which it had about the share that the candidate has now.
        """
        if self.weight <= FAIREST_WEIGHT or not self.baselines:
            return self.lanes.get("stable", {}), "the same window"
        near = min(self.baselines, key=lambda past: abs(past.stable_share - self.weight))
        return near.lanes, f"step {near.step + 1}, when it had {near.stable_share:.0%} of the keys"

    def _note_reporter(self, report: IngressReport, at: float) -> None:
        for known in (self.sequences, self.heard_at):
            if report.reporter not in known and len(known) >= _MOST_REPORTERS:
                oldest = min(self.heard_at, key=lambda name: self.heard_at[name])
                del self.sequences[oldest], self.heard_at[oldest]
        self.sequences[report.reporter] = report.sequence
        self.heard_at[report.reporter] = at

    def _role_of(self, version: str) -> Role | None:
        return {self.candidate: ROLES[1], self.stable: ROLES[0]}.get(version)

    def _add_moment(self, report: IngressReport, at: float) -> None:
        requests, errors = dict.fromkeys(ROLES, 0), dict.fromkeys(ROLES, 0)
        for cell in report.cells:
            if role := self._role_of(cell.version):
                requests[role] += cell.num_requests
                errors[role] += cell.num_errors
        moment = Moment(
            at=at,
            stable_requests=requests["stable"],
            stable_errors=errors["stable"],
            candidate_requests=requests["candidate"],
            candidate_errors=errors["candidate"],
            unreachable=report.crashed_versions.get(self.candidate, 0),
        )
        self.moments.append(moment)
        # Not at each report, which would be quadratic in their number.
        is_old = self.moments[0].at < at - 2 * self.look_back_s
        if is_old or len(self.moments) > _MOST_MOMENTS:
            kept = self.moments[-_MOST_MOMENTS // 2 :]
            self.moments = [one for one in kept if one.at >= at - self.look_back_s]

    def _add_cells(self, report: IngressReport) -> None:
        times: dict[str, dict[Role, list[float]]] = {}
        for cell in report.cells:
            if role := self._role_of(cell.version):
                self.lanes[role].setdefault(cell.lane, LaneTally()).add(cell)
                times.setdefault(cell.lane, {})[role] = list(cell.latencies_ms)
        for lane, of in times.items():
            pair = self.pairs.setdefault(lane, PairTally())
            pair.add(of.get("candidate", []), of.get("stable", []), ratio=self.typical_ratio)

    def _add_comparison(self, item: Comparison) -> None:
        names = {
            "all": "all",
            "lane": item.lane,
            "length": _length_name(item.num_tokens, self.length_edges),
            "label": item.stable_label,
        }
        for kind, name in names.items():
            groups = self.comparisons.setdefault(kind, {})
            tally = groups.setdefault(bounded_name(name, groups), ComparisonTally())
            tally.add(item, tolerance=self.shift_tolerance)
        if item.candidate_failed or is_flip(item, tolerance=self.shift_tolerance):
            self._sample(item)

    def _sample(self, item: Comparison) -> None:
        # Vitter's algorithm R, with a hash for the drawing so that a restart repeats it.
        self.num_disagreements += 1
        if len(self.disagreements) < self.kept_disagreements:
            self.disagreements.append(item)
            return
        point = key_point(f"{self.release_id}/sample", str(self.num_disagreements))
        place = int(point * self.num_disagreements)
        if place < self.kept_disagreements:
            self.disagreements[place] = item

    def _add_feedback(self, feedback: Feedback) -> None:
        role = self._role_of(feedback.version)
        if role is None or feedback.request_id in self.fed_back:
            return
        if len(self.fed_back) >= _MOST_FED_BACK:
            del self.fed_back[next(iter(self.fed_back))]
        self.fed_back[feedback.request_id] = feedback.is_right
        self.feedback[role].num_labels += 1
        self.feedback[role].num_wrong += not feedback.is_right

    def _add_profile(self, profile: LiveProfile) -> None:
        if self._role_of(profile.version):
            empty = ProfileTally(now=empty_profile(profile.version))
            self.profiles.setdefault(profile.version, empty).add(profile)


def evidence_of(
    release: Release, *, stable: str, shift_tolerance: float, length_edges: Sequence[int]
) -> Evidence:
    """Return evidence without any report yet, at the release's step.

    Args:
        release: under way.
        stable: the stable version.
        shift_tolerance: the larger ``batch_shift`` of the two bundles; the plan's own wins.
        length_edges: ``profile.length_edges`` of the stable bundle's percentiles.
    """
    plan = release.plan
    own = plan.thresholds.shift_tolerance
    evidence = Evidence(
        release_id=release.release_id,
        stable=stable,
        candidate=release.candidate.version,
        shift_tolerance=shift_tolerance if own is None else own,
        typical_ratio=plan.thresholds.max_typical_ratio,
        length_edges=tuple(length_edges),
        kept_disagreements=plan.shadow.kept_disagreements,
        settle_s=plan.settle_s,
        look_back_s=max(plan.hard_limits.burst_window_s, plan.hard_limits.crash_window_s),
    )
    evidence.follow(release)
    return evidence


def _length_name(num_tokens: int, edges: Sequence[int]) -> str:
    """Return the words for a class of lengths, such as ``17–32``."""
    least = 1
    for edge in edges:
        if num_tokens <= edge:
            return f"{least}–{edge}"
        least = edge + 1
    return f"over {edges[-1]}" if edges else "all"
