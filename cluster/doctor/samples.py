"""Prometheus' text format to samples; pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from pipeline.contract.errors import CommandError

WANTED = (
    "ray_component_cpu_percentage",
    "ray_component_uss_bytes",
    "ray_node_cpu_count",
    "ray_node_cpu_utilization",
    "ray_node_mem_available",
    "ray_node_mem_total",
    "ray_serve_deployment_replica_healthy",
    "ray_serve_deployment_replica_starts_total",
    "ray_serve_replica_initialization_latency_ms",
    "ray_serve_replica_startup_latency_ms",
    "ray_textlane_",
)
"""Beginnings of the names that a symptom looks at; a page of Ray's has twenty times as many."""
LABELS = (
    "Component",
    "NodeAddress",
    "WorkerId",
    "deployment",
    "ip",
    "lane",
    "le",
    "outcome",
    "path",
    "pid",
    "replica",
    "setting",
    "stage",
)
"""Labels that tell series apart for a symptom, or one process's series from another's."""
_MOST = 1e18
_MOST_SAMPLES = 100_000
"""Chosen: to read so many takes about 4 s; a service of three replicas tells some hundreds."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One series at one moment."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """All samples of one moment."""

    time_s: float
    """Of any clock that only goes forward."""
    samples: tuple[Sample, ...]


def read_samples(text: str, *, place: str) -> list[Sample]:
    """Return the samples of a page that a symptom looks at.

    Args:
        text: in Prometheus' text format.
        place: where it came from, for the error.

    Raises:
        CommandError: it is something else.
    """
    lines = [line for line in text.split("\n") if line.startswith(WANTED)]
    if len(lines) > _MOST_SAMPLES:
        raise CommandError(f"over {_MOST_SAMPLES} samples of serving", place=place)
    try:
        return [_keep(sample) for sample in _parse(lines)]
    except (ValueError, KeyError, IndexError) as error:
        raise CommandError(
            f"not metrics in Prometheus' text format: {error}",
            place=place,
            remedy="Give the metrics URL that `textlane serve` prints with --metrics.",
        ) from None


def write_samples(samples: Iterable[Sample]) -> str:
    """Return samples as text that :func:`read_samples` reads."""
    lines = []
    for sample in samples:
        labels = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels.items())
        lines.append(f"{sample.name}{{{labels}}} {sample.value!r}\n")
    return "".join(lines)


def _parse(lines: list[str]) -> Iterable[Sample]:
    # Without its comments each line is a family of its own, and so a sample of its own.
    for family in text_string_to_metric_families("\n".join(lines)):
        for found in family.samples:
            yield Sample(name=found.name, labels=found.labels, value=float(found.value))


def _keep(sample: Sample) -> Sample:
    # Sums of anything less stay finite, as JSON needs them.
    if not abs(sample.value) <= _MOST:
        raise ValueError(f"{sample.name} is {sample.value}")
    if sample.name.endswith("_bucket"):
        edge = float(sample.labels["le"])
        if not (edge == math.inf or abs(edge) <= _MOST):
            raise ValueError(f"{sample.name} has the edge {edge}")
    labels = {name: value for name, value in sample.labels.items() if name in LABELS and value}
    return Sample(name=sample.name, labels=labels, value=sample.value)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
