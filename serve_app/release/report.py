"""What an ingress tells the release desk each second: counts, times and compared answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_LATENCIES = 512
"""Times of one cell in one report; over that a uniform sample of them."""
MAX_COMPARISONS = 512
"""Compared answers of one report; more are counted as dropped."""


@dataclass(frozen=True, kw_only=True)
class TrafficCell:
    """Users' requests to one version and lane in one report's time; shadows are none of them."""

    version: str
    lane: str
    num_requests: int
    num_errors: int
    """Of them, those that the version failed: 5xx of its lanes, no client's mistakes, no 429."""
    latencies_ms: Sequence[float]
    """Of the good ones, arrival to answer."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One text answered by both versions."""

    request_id: str
    lane: str
    num_tokens: int
    stable_label: str
    candidate_label: str
    """For the token task the first word's labels that differ, else the first word's."""
    stable_score: float
    candidate_score: float
    shift: float
    """Largest difference of a label's probability, over the labels that both know."""
    stable_ms: float
    """Session time."""
    candidate_ms: float
    candidate_failed: bool = False
    """The candidate had no answer where stable had one; labels and scores are empty and 0."""
    text: str | None = None
    """Only where the table lets texts be kept."""

    @property
    def is_flip(self) -> bool:
        """Whether the labels differ."""
        return self.stable_label != self.candidate_label


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """What a user said the right label is."""

    version: str
    is_right: bool
    request_id: str


@dataclass(frozen=True, kw_only=True)
class LiveProfile:
    """Texts that one version answered in one report's time, for drift."""

    version: str
    length_counts: Sequence[int]
    """By the classes of ``drift.length_edges``."""
    num_tokens: int
    num_unknown_tokens: int
    confidence_counts: Sequence[int]
    """Scores of the given labels in ten equal classes from 0 to 1."""
    label_counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class IngressReport:
    """Everything since the report before, of one ingress replica."""

    reporter: str
    """Replica; two reports of one sequence number are one, sent again."""
    sequence: int
    table_number: int
    """The routing table that it works by."""
    cells: Sequence[TrafficCell] = ()
    comparisons: Sequence[Comparison] = ()
    num_dropped_comparisons: int = 0
    feedback: Sequence[Feedback] = ()
    profiles: Sequence[LiveProfile] = ()
    crashed_versions: Mapping[str, int] = field(default_factory=dict)
    """Version → calls that found no replica of its lanes."""
