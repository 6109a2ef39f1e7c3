"""What a symptom is: one entry of one table, for the command and for the runbook."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from cluster.doctor.observations import LaneObservation, Observations, ServingObservation


@dataclass(frozen=True, kw_only=True)
class Signs:
    """A symptom seen at one place."""

    where: str
    """Lane, machine, folder or process."""
    figures: Mapping[str, float | str]
    """The evidence, by the words of the symptom's formula; shares are from 0 to 1."""
    cure: Mapping[str, object] = field(default_factory=dict)
    """What stands for the names in braces in the symptom's cure."""


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One kind of trouble, how it is told from others, and what helps."""

    name: str
    area: str
    """Heading that it stands under: memory, jitter, throughput …"""
    seen: str
    """What a person sees, one sentence."""
    evidence: str
    """The formula, in the names of metrics or files."""
    threshold: str
    """From which figures on it is present."""
    chosen: str
    """Where the threshold comes from: measured where, or chosen why."""
    cure: str
    """The command; names in braces are filled in where it is found."""
    cure_example: Mapping[str, object]
    """What the runbook fills in for them."""
    why: str
    """Why the cure helps, and what else to look at; one sentence."""
    drill: str
    """Command that provokes it."""
    find: Callable[[Observations], Iterator[Signs]]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A symptom that is present."""

    symptom: str
    where: str
    seen: str
    figures: Mapping[str, float | str]
    threshold: str
    cure: str
    why: str


def busy_lanes(
    seen: Observations, *, least_rows: int = 0
) -> Iterator[tuple[str, LaneObservation, ServingObservation]]:
    """Yield name and observation of each lane that ran at least so many rows, and the service."""
    if seen.serving is not None:
        for name, lane in seen.serving.lanes.items():
            if lane.rows >= max(least_rows, 1):
                yield name, lane, seen.serving
