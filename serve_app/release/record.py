"""The record of a release: how it ended, why, and the numbers, for people and for machines."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from serve_app.release.check_result import CheckResult, HardLimit
from serve_app.release.report import Comparison

_MOST_EVENTS = 200


class Outcome(StrEnum):
    """How a release ended."""

    PROMOTED = "promoted"
    """The candidate is the stable version now."""
    ROLLED_BACK = "rolled_back"
    """A check or hard limit took the candidate's traffic away."""
    ABORTED = "aborted"
    """A person did."""
    FAILED_TO_START = "failed_to_start"
    """The candidate's lanes never ran; it had no traffic."""
    SUPERSEDED = "superseded"
    """The service was started with another bundle."""


@dataclass(frozen=True, kw_only=True)
class ReleaseEvent:
    """Something that happened to a release."""

    at: float
    """Seconds since 1970."""
    kind: str
    """``started``, ``deployed``, ``step``, ``paused``, ``resumed``, or an outcome."""
    weight: float
    """Share of the keys from then on."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class GroupFigures:
    """Compared answers of one lane, class of length or label."""

    kind: str
    """``all``, ``lane``, ``length`` or ``label``, the stable version's."""
    name: str
    num_comparisons: int
    num_flips: int
    num_shifts: int
    num_failures: int


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was known when a release ended."""

    results: tuple[CheckResult, ...] = ()
    hard_limit: HardLimit | None = None
    groups: tuple[GroupFigures, ...] = ()
    disagreements: tuple[Comparison, ...] = ()
    warnings: tuple[str, ...] = ()
    """Of drift."""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.verdict == "fail")


@dataclass(frozen=True, kw_only=True)
class ReleaseRecord:
    """A release that ended."""

    release_id: str
    outcome: Outcome
    reason: str
    stable: str
    """The version that was stable while it ran."""
    candidate: str
    candidate_bundle: str
    started_at: float
    ended_at: float
    step: int
    """Index in the plan's steps; -1: none was reached."""
    weight: float
    """The candidate's last share of the keys."""
    findings: Findings
    events: tuple[ReleaseEvent, ...]


def add_event(events: tuple[ReleaseEvent, ...], event: ReleaseEvent) -> tuple[ReleaseEvent, ...]:
    """Return the events with one more; of very many the oldest go, but the first."""
    added = (*events, event)
    return added if len(added) <= _MOST_EVENTS else (added[0], *added[2:])


def without_texts(record: ReleaseRecord) -> ReleaseRecord:
    """Return the record without the texts of its sample disagreements."""
    bare = tuple(replace(item, text=None) for item in record.findings.disagreements)
    return replace(record, findings=replace(record.findings, disagreements=bare))


def describe_record(record: ReleaseRecord) -> str:
    """Return the record as lines for a terminal or a log."""
    return "\n".join(_lines(record))


def _lines(record: ReleaseRecord) -> Iterator[str]:
    took = record.ended_at - record.started_at
    yield f"release {record.release_id}: {record.outcome.replace('_', ' ')} after {took:.0f} s"
    yield f"  candidate  {record.candidate}"
    yield f"  stable     {record.stable}"
    yield f"  at step    {record.step + 1}, weight {record.weight:g}"
    yield f"  why        {record.reason}"
    findings = record.findings
    if findings.hard_limit:
        limit = findings.hard_limit
        yield (
            f"  {limit.name}: {limit.value:g} against a limit of {limit.threshold:g}, "
            f"in {limit.window_s:g} s"
        )
    if findings.results:
        yield "  checks:"
    for result in findings.results:
        yield f"    {describe_result(result)}"
    if findings.disagreements:
        yield f"  {len(findings.disagreements)} sample disagreements:"
    for item in findings.disagreements:
        yield f"    {_describe_disagreement(item)}"
    for warning in findings.warnings:
        yield f"  warning: {warning}"
    if record.events:
        yield "  what happened:"
    for event in record.events:
        when = datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        yield f"    {when} UTC  {event.kind}, weight {event.weight:g}: {event.reason}"


def describe_result(result: CheckResult) -> str:
    """Return one line about a check."""
    window = result.window_end - result.window_start
    samples = f"{result.num_candidate} and {result.num_stable} samples in {window:.0f} s"
    return f"{result.verdict:<12} {result.name}: {result.reason} ({result.test}; {samples})"


def _describe_disagreement(item: Comparison) -> str:
    answer = "no answer" if item.candidate_failed else _scored(item.candidate_label, item)
    text = f": {item.text!r}" if item.text is not None else ""
    return (
        f"{item.request_id}: {item.stable_label} {item.stable_score:.3f} → {answer}, "
        f"shift {item.shift:.3f}, {item.lane}, {item.num_tokens} tokens{text}"
    )


def _scored(label: str, item: Comparison) -> str:
    return f"{label} {item.candidate_score:.3f}"
