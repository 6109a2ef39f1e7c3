"""What the symptoms look at, as numbers with names."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class LaneObservation:
    """What one lane did; rates and shares are over the window."""

    replicas: int
    settings: Mapping[str, float]
    """As its replicas told them; empty where none did."""
    requests: int
    p50_s: float | None
    """From arrival to answer; None where nothing was answered, as below."""
    p99_s: float | None
    queue_p99_s: float | None
    session_p50_s: float | None
    session_p99_s: float | None
    longest_p50_tokens: float | None
    """Of the longest text of each model run."""
    longest_p99_tokens: float | None
    runs: int
    rows: int
    real_tokens: int
    padded_tokens: int
    busy_share: float | None
    """Of its replicas' time; None where the window is the whole life."""
    most_queued_texts: int
    oldest_queued_s: float
    starts: int
    """Replicas that were started within the window."""
    slow_inits: int
    """Replicas, since the start, whose constructor took over ``SLOW_INIT_S``."""
    slow_startups: int
    """Replicas, since the start, that took over ``SLOW_STARTUP_S`` from process to ready."""


@dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """Bytes that a kind of process has alone, at each scrape that told it."""

    component: str
    own_bytes: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class NodeObservation:
    """One machine."""

    address: str
    cpus: float
    cpu_share: float
    """Mean share of all its CPUs that was busy, by whomever."""
    most_cpu_share: float
    """The same of the busiest reading."""
    available_share: float
    """Least share of its memory that could still be had."""
    total_bytes: float
    lane_threads: int
    """Threads of all lane replicas on it."""
    usable_cpus: int
    """What cgroup and affinity leave a replica on it; 0 where none told."""


@dataclass(frozen=True, kw_only=True)
class ServingObservation:
    """What a running service showed."""

    basis: str
    """What the figures are of, for people: ``the last 20 s`` or ``the whole life``."""
    lanes: Mapping[str, LaneObservation]
    """By ``short`` and ``long``."""
    outcomes: Mapping[str, int]
    """Prediction requests by outcome."""
    ingress_replicas: int
    ingress_settings: Mapping[str, float]
    ingress_cpu_share: float | None
    """Most of one CPU that an ingress replica used; None where it was not told."""
    nodes: tuple[NodeObservation, ...]
    memory: tuple[ProcessMemory, ...]

    @property
    def num_requests(self) -> int:
        """Prediction requests."""
        return sum(self.outcomes.values())

    @property
    def cpu_share(self) -> float | None:
        """Mean of the busiest machine."""
        return max((node.cpu_share for node in self.nodes), default=None)

    @property
    def most_cpu_share(self) -> float | None:
        """The most that was read of any machine."""
        return max((node.most_cpu_share for node in self.nodes), default=None)


@dataclass(frozen=True, kw_only=True)
class Event:
    """A line of a training's ``events.jsonl``."""

    step: int
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class TrainingObservation:
    """What a checkpoint folder tells of its training since it was last started."""

    folder: str
    events: tuple[Event, ...]
    steps: int
    micro_batch: int | None
    """Rows of a pass at the last step; None before the first."""
    padding_share: float | None
    """Of the tokens that the last steps ran."""
    spoilt_lines: int
    """Lines of its records that cannot be read."""

    def last_event(self, kind: str) -> Event | None:
        """Return the last event of a kind."""
        found = [event for event in self.events if event.kind == kind]
        return found[-1] if found else None


@dataclass(frozen=True, kw_only=True)
class QualityObservation:
    """What export recorded about the model files of a bundle."""

    served: str
    """Model file that is served, or would be by default."""
    accuracy: Mapping[str, float]
    latency_ms: Mapping[str, Mapping[str, float]]
    """Model file → shape → milliseconds."""
    max_drop: float | None
    """The gate's limit."""
    gate_outcome: str | None
    """``passed`` or why not; None where there was no gate."""


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Everything that was looked at; None is what was not."""

    serving: ServingObservation | None = None
    is_ready: bool | None = None
    ready_answer: str = ""
    """What ``/readyz`` said where it is not ready."""
    training: TrainingObservation | None = None
    quality: QualityObservation | None = None
    notes: tuple[str, ...] = field(default=())
    """What could not be looked at, for people."""
