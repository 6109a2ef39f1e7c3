"""What the release desk shows people: the JSON of its status and history.

Times are seconds since the epoch, shares and rates 0 to 1.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

StateName = Literal[
    "none",
    "starting",
    "running",
    "paused",
    "promoted",
    "rolled_back",
    "aborted",
    "failed_to_start",
    "superseded",
]
"""``none``: there never was a release; ``starting``: the candidate's lanes are being started;
``rolled_back``: a check or a hard limit took the traffic away; ``aborted``: a person did;
``failed_to_start``: its lanes never ran; ``superseded``: the Serve file named another bundle. The
last five stay until the next start."""
UNDER_WAY: tuple[StateName, ...] = ("starting", "running", "paused")
Verdict = Literal["pass", "fail", "inconclusive"]
DriftLevel = Literal["none", "moderate", "large", "inconclusive"]
MAX_SHOWN_POINTS = 240
"""Points of one check's track in a status; over that, the desk leaves some out."""
MAX_SHOWN_SAMPLES = 50
"""Disagreements in a status or a rollback record."""


class _View(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def to_json(self) -> bytes:
        """Return the body as it goes over the wire."""
        return self.__pydantic_serializer__.to_json(self)


class VersionView(_View):
    """A version that can answer."""

    version: str
    bundle: str
    """Absolute folder."""


class StepView(_View):
    """Where a release is in its plan."""

    number: int
    """From 1."""
    num_steps: int
    weight: float
    """Share of the keys that the plan gives the candidate in this step."""
    dwell_s: float
    """How long the step lasts at least."""
    remaining_s: float
    """Of the dwell; 0: over, and only ``waits_for`` holds the next step back."""
    waits_for: list[str] = Field(default_factory=list)
    """Names of the checks that must pass before the next step and do not yet."""


class TrafficView(_View):
    """Users' requests to one version and lane in the present window."""

    version: str
    lane: str
    num_requests: int
    num_errors: int
    p50_ms: float | None
    p99_ms: float | None


class CheckView(_View):
    """What one check says now."""

    name: str
    """Such as ``error_rate``."""
    lane: str | None = None
    """None: of all lanes together."""
    verdict: Verdict
    reason: str
    """One sentence with the numbers, for people."""
    values: dict[str, float | None] = Field(default_factory=dict)
    """``measured``, and what it comes from: ``stable``, ``candidate``; the first is drawn."""
    measure: str = ""
    """What ``measured`` is, in words."""
    thresholds: dict[str, float] = Field(default_factory=dict)
    """What it was held against, by the same names where it is about one of them."""
    test: str = ""
    """The statistical test, in words."""
    interval: tuple[float | None, float | None] | None = None
    """Of the first value; wholly beyond its threshold it fails. None: that end is open."""
    alpha: float | None = None
    """Chance that the truth is ever outside the interval in this step."""
    is_required: bool = True
    """Whether a step waits for it to pass; whatever is required or not, a failure rolls back."""
    samples: dict[str, int] = Field(default_factory=dict)
    """Such as ``stable`` and ``candidate``."""
    from_s: float
    until_s: float


class CheckPoint(_View):
    """What a check said at one moment."""

    at_s: float
    verdict: Verdict
    value: float | None
    """The first of its values."""


class CheckTrack(_View):
    """What a check said over the release."""

    name: str
    lane: str | None = None
    threshold: float | None = None
    """Of the value drawn."""
    points: list[CheckPoint]
    """Oldest first, at most ``MAX_SHOWN_POINTS``."""


class DisagreementRow(_View):
    """Compared answers of one lane, class of length or label."""

    by: Literal["all", "lane", "length", "label"]
    group: str
    """Such as ``short``, ``17–32`` tokens, or the stable version's label."""
    num_compared: int
    num_flips: int
    """Other label."""
    num_shifts: int
    """Same label, probability beyond the bundle's tolerance."""
    num_failed: int
    """The candidate had no answer."""


class Disagreement(_View):
    """One text that both versions answered, and not alike."""

    request_id: str
    lane: str
    num_tokens: int
    stable_label: str
    candidate_label: str
    """Empty: no answer."""
    stable_score: float
    candidate_score: float
    shift: float
    text: str | None = None
    """Only where the release may keep texts."""


class ShadowView(_View):
    """Requests that were also run on the other version."""

    share: float
    """Of all requests, as the plan has it."""
    texts_per_s: float
    """What one ingress may spend on it."""
    num_compared: int
    num_dropped: int
    """For want of budget, or because the service was busy."""
    tolerance: float | None = None
    """Shift of a probability that the bundle allows."""


class DriftView(_View):
    """Live texts of one version against what it was trained on; warns, decides nothing."""

    version: str
    feature: str
    """``length``, ``unknown_tokens``, ``confidence`` or ``labels``."""
    level: DriftLevel
    psi: float | None
    """Population stability index."""
    num_samples: int
    note: str
    """For people."""


class RollbackView(_View):
    """Why a candidate lost its traffic."""

    candidate: VersionView
    stable: str
    """Version that was stable while it ran."""
    decided_by: Literal["check", "hard_limit", "person"]
    reason: str
    at_s: float
    step_number: int
    weight: float
    """The candidate's when it was taken away."""
    checks: list[CheckView]
    """Those that decided, first, and then all others as they stood."""
    disagreements: list[Disagreement]


class EventView(_View):
    """Something that happened to a release."""

    at_s: float
    kind: str
    """``started``, ``deployed``, ``step``, ``paused``, ``resumed``, or how it ended."""
    weight: float
    """Share of the keys from then on."""
    reason: str


class PastRelease(_View):
    """One finished release."""

    release_id: str
    state: StateName
    """The last one: promoted, rolled_back, aborted, failed_to_start or superseded."""
    stable: str
    """Version that was stable while it ran."""
    candidate: VersionView
    started_s: float
    ended_s: float
    reason: str
    events: list[EventView] = Field(default_factory=list)
    rollback: RollbackView | None = None


class ReleaseStatus(_View):
    """Everything about the release that is under way, or the last one."""

    state: StateName
    now_s: float
    release_id: str | None = None
    stable: VersionView
    """After a promotion, what was the candidate."""
    candidate: VersionView | None = None
    """Of this release, also after its end; None: no release yet."""
    weight: float = 0.0
    """Share of the keys that the candidate answers now."""
    started_s: float | None = None
    ended_s: float | None = None
    reason: str = ""
    """Why it is in this state, for people."""
    step: StepView | None = None
    """None: none is under way."""
    num_ingresses: int = 0
    """Ingress replicas that were heard of in the last seconds."""
    traffic: list[TrafficView] = Field(default_factory=list)
    shadow: ShadowView | None = None
    checks: list[CheckView] = Field(default_factory=list)
    tracks: list[CheckTrack] = Field(default_factory=list)
    disagreements: list[DisagreementRow] = Field(default_factory=list)
    sample: list[Disagreement] = Field(default_factory=list)
    """At most ``MAX_SHOWN_SAMPLES`` of them."""
    drift: list[DriftView] = Field(default_factory=list)
    events: list[EventView] = Field(default_factory=list)
    """Oldest first."""
    rollback: RollbackView | None = None
    """Of this release, if it was rolled back or aborted."""


class ReleaseHistory(_View):
    """Finished releases, the newest first."""

    releases: list[PastRelease]
