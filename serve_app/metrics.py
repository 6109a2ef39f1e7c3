"""Every metric's name, unit, labels and bucket boundaries; Ray exports them to Prometheus.

Ray 2.60 exports a histogram's ``_count`` and buckets exactly but builds its ``_sum`` from
the middles of the buckets. So what is to be averaged exactly has a counter of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ray.serve import metrics as ray_metrics

from pipeline.contract.batching import padded_token_count
from serve_app.load_watch import QueueLoad
from serve_app.release.check_result import Verdict
from serve_app.release.decide import Decision
from serve_app.release.record import Outcome
from serve_app.release.state import Phase, ReleaseState
from serve_app.request_record import RequestRecord

LATENCY_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
NO_LANE = "none"
"""Label of requests that no lane was asked for."""
TOKEN_BUCKETS = (16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_NO_RELEASE = "none"
_VERDICTS = {Verdict.PASS: 1.0, Verdict.INCONCLUSIVE: 0.0, Verdict.FAIL: -1.0}
ROW_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """One metric; Ray puts ``ray_`` before the name and adds deployment and replica."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    tag_keys: tuple[str, ...]
    boundaries: tuple[float, ...] = ()


REQUEST_LATENCY = MetricSpec(
    name="textlane_request_latency_seconds",
    kind="histogram",
    unit="seconds",
    description="Time from the request's arrival at the ingress to its whole answer.",
    tag_keys=("path", "lane", "version"),
    boundaries=LATENCY_BUCKETS_S,
)
STAGE_LATENCY = MetricSpec(
    name="textlane_stage_latency_seconds",
    kind="histogram",
    unit="seconds",
    description="Time of a predict request in one stage: tokenise, queue or session.",
    tag_keys=("stage", "lane", "version"),
    boundaries=LATENCY_BUCKETS_S,
)
REQUESTS = MetricSpec(
    name="textlane_requests",
    kind="counter",
    unit="requests",
    description="Requests by HTTP status and outcome: ok or the code of the error.",
    tag_keys=("path", "status", "outcome", "lane", "version"),
)
TRUNCATED_TEXTS = MetricSpec(
    name="textlane_truncated_texts",
    kind="counter",
    unit="texts",
    description="Texts whose end was cut off at max_seq_len; compare with textlane_rows.",
    tag_keys=("lane", "version"),
)
BATCH_ROWS = MetricSpec(
    name="textlane_batch_rows",
    kind="histogram",
    unit="rows",
    description="Rows of one model run; its count is the number of runs.",
    tag_keys=("lane", "version"),
    boundaries=ROW_BUCKETS,
)
BATCH_LONGEST = MetricSpec(
    name="textlane_batch_longest_tokens",
    kind="histogram",
    unit="tokens",
    description="Longest text of one model run, which all its rows are padded to.",
    tag_keys=("lane", "version"),
    boundaries=TOKEN_BUCKETS,
)
ROWS = MetricSpec(
    name="textlane_rows",
    kind="counter",
    unit="rows",
    description="Rows that the model ran; over the count of textlane_batch_rows: mean batch.",
    tag_keys=("lane", "version"),
)
REAL_TOKENS = MetricSpec(
    name="textlane_real_tokens",
    kind="counter",
    unit="tokens",
    description="Tokens of texts that the model ran.",
    tag_keys=("lane", "version"),
)
PADDED_TOKENS = MetricSpec(
    name="textlane_padded_tokens",
    kind="counter",
    unit="tokens",
    description="Tokens that the model ran, padding included; compare with real tokens.",
    tag_keys=("lane", "version"),
)
QUEUED_TEXTS = MetricSpec(
    name="textlane_queued_texts",
    kind="gauge",
    unit="texts",
    description="Texts that wait on the replica for their model run.",
    tag_keys=("lane", "version"),
)
QUEUE_AGE = MetricSpec(
    name="textlane_queue_age_seconds",
    kind="gauge",
    unit="seconds",
    description="How long the oldest of them has waited; 0 where none waits.",
    tag_keys=("lane", "version"),
)
SESSION_SECONDS = MetricSpec(
    name="textlane_session_seconds",
    kind="counter",
    unit="seconds",
    description="Time in which the model ran; its rate is the busy share.",
    tag_keys=("lane", "version"),
)
GPU_UTILISATION = MetricSpec(
    name="textlane_gpu_utilisation_ratio",
    kind="gauge",
    unit="ratio",
    description="Share of the last moment in which the replica's GPU computed; absent without.",
    tag_keys=("lane", "version"),
)
SETTING = MetricSpec(
    name="textlane_setting",
    kind="gauge",
    unit="as the setting's",
    description="A setting that this replica works with; true is 1.",
    tag_keys=("setting", "lane", "version"),
)
RELEASE_STATE = MetricSpec(
    name="textlane_release_state",
    kind="gauge",
    unit="state",
    description="1 for the state that the release is in, 0 for the others; the last one stays.",
    tag_keys=("state",),
)
RELEASE_WEIGHT = MetricSpec(
    name="textlane_release_weight",
    kind="gauge",
    unit="ratio",
    description="Share of the keys that the candidate answers; 0 without a release.",
    tag_keys=(),
)
RELEASE_CHECK = MetricSpec(
    name="textlane_release_check",
    kind="gauge",
    unit="verdict",
    description="What each check says: 1 pass, 0 inconclusive, -1 fail.",
    tag_keys=("check",),
)
INGRESS_METRICS = (REQUEST_LATENCY, STAGE_LATENCY, REQUESTS, TRUNCATED_TEXTS)
BATCH_METRICS = (BATCH_ROWS, BATCH_LONGEST, ROWS, REAL_TOKENS, PADDED_TOKENS)
LOAD_METRICS = (QUEUED_TEXTS, QUEUE_AGE, SESSION_SECONDS, GPU_UTILISATION)
RELEASE_METRICS = (RELEASE_STATE, RELEASE_WEIGHT, RELEASE_CHECK)
ALL_METRICS = (*INGRESS_METRICS, *BATCH_METRICS, *LOAD_METRICS, *RELEASE_METRICS, SETTING)


class SettingMetrics:
    """What a replica tells of its settings."""

    def __init__(self, lane: str, *, version: str) -> None:
        """Register the metric with Ray."""
        self._tags = {"lane": lane, "version": version}
        self._gauge = _build_gauge(SETTING)

    def tell(self, settings: Mapping[str, float]) -> None:
        """Tell all settings; Ray forgets a gauge when it has passed it on, so tell often."""
        for name, value in settings.items():
            self._gauge.set(float(value), tags={"setting": name, **self._tags})


class IngressMetrics:
    """What an ingress replica reports."""

    def __init__(self) -> None:
        """Register the metrics with Ray."""
        self._latency = _build_histogram(REQUEST_LATENCY)
        self._stage = _build_histogram(STAGE_LATENCY)
        self._requests = _build_counter(REQUESTS)
        self._truncated = _build_counter(TRUNCATED_TEXTS)

    def observe_request(self, record: RequestRecord) -> None:
        """Count one request at its end."""
        origin = {"lane": record.lane or NO_LANE, "version": record.version}
        self._latency.observe(record.total_ms / 1000.0, tags={"path": record.path, **origin})
        self._requests.inc(
            tags={
                "path": record.path,
                "status": str(record.status),
                "outcome": record.code,
                **origin,
            }
        )
        stages = (
            ("tokenise", record.tokenise_ms),
            ("queue", record.queue_ms),
            ("session", record.session_ms),
        )
        for stage, time_ms in stages:
            if time_ms is not None:
                self._stage.observe(time_ms / 1000.0, tags={"stage": stage, **origin})
        if record.num_truncated:
            self._truncated.inc(float(record.num_truncated), tags=origin)


class LaneMetrics:
    """What a lane replica reports."""

    def __init__(self, lane: str, *, version: str) -> None:
        """Register the metrics with Ray."""
        self._tags = {"lane": lane, "version": version}
        self._batch_rows = _build_histogram(BATCH_ROWS)
        self._batch_longest = _build_histogram(BATCH_LONGEST)
        self._rows = _build_counter(ROWS)
        self._real_tokens = _build_counter(REAL_TOKENS)
        self._padded_tokens = _build_counter(PADDED_TOKENS)
        self._queued_texts = _build_gauge(QUEUED_TEXTS)
        self._queue_age = _build_gauge(QUEUE_AGE)
        self._session_seconds = _build_counter(SESSION_SECONDS)
        self._gpu_utilisation = _build_gauge(GPU_UTILISATION)
        self._counted_busy_s = 0.0

    def observe_group(self, lengths: Sequence[int]) -> None:
        """Count one model run over rows of these lengths."""
        self._batch_rows.observe(float(len(lengths)), tags=dict(self._tags))
        self._batch_longest.observe(float(max(lengths)), tags=dict(self._tags))
        self._rows.inc(float(len(lengths)), tags=dict(self._tags))
        self._real_tokens.inc(float(sum(lengths)), tags=dict(self._tags))
        self._padded_tokens.inc(float(padded_token_count(lengths)), tags=dict(self._tags))

    def observe_load(self, load: QueueLoad, gpu_utilisation: float | None) -> None:
        """Tell how the queue stands; without a figure of a GPU there is no metric of it."""
        self._queued_texts.set(float(load.num_texts), tags=dict(self._tags))
        self._queue_age.set(load.oldest_s, tags=dict(self._tags))
        ran_s = load.busy_s - self._counted_busy_s
        if ran_s > 0.0:
            self._session_seconds.inc(ran_s, tags=dict(self._tags))
            self._counted_busy_s = load.busy_s
        if gpu_utilisation is not None:
            self._gpu_utilisation.set(gpu_utilisation, tags=dict(self._tags))


class ReleaseMetrics:
    """What the release desk reports."""

    def __init__(self) -> None:
        """Register the metrics with Ray."""
        self._state = _build_gauge(RELEASE_STATE)
        self._weight = _build_gauge(RELEASE_WEIGHT)
        self._check = _build_gauge(RELEASE_CHECK)

    def observe(self, state: ReleaseState, decision: Decision) -> None:
        """Tell how the release stands after a look."""
        release, last = state.release, state.last
        name = str(release.phase) if release else str(last.outcome) if last else _NO_RELEASE
        for known in (*Phase, *Outcome, _NO_RELEASE):
            self._state.set(float(known == name), tags={"state": str(known)})
        self._weight.set(release.weight if release else 0.0)
        for result in decision.results:
            self._check.set(_VERDICTS[result.verdict], tags={"check": result.name})


def _build_counter(spec: MetricSpec) -> ray_metrics.Counter:
    return ray_metrics.Counter(spec.name, description=spec.description, tag_keys=_keys_of(spec))


def _build_gauge(spec: MetricSpec) -> ray_metrics.Gauge:
    return ray_metrics.Gauge(spec.name, description=spec.description, tag_keys=_keys_of(spec))


def _build_histogram(spec: MetricSpec) -> ray_metrics.Histogram:
    return ray_metrics.Histogram(
        spec.name,
        description=spec.description,
        boundaries=list(spec.boundaries),
        tag_keys=_keys_of(spec),
    )


def _keys_of(spec: MetricSpec) -> Any:
    # Ray annotates a tuple of one key where it takes a tuple of any length.
    return spec.tag_keys
