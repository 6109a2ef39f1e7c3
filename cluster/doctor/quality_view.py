"""What export recorded in a manifest, or serving shows of it, to what the symptoms look at."""

from collections.abc import Mapping
from typing import Any

from cluster.doctor.observations import QualityObservation

_MOST = 1e9


def observe_quality(quality: object, *, served: str) -> QualityObservation | None:
    """Return the figures that are there; None if there is none.

    Args:
        quality: of a manifest or of ``/v1/model``; what is not a figure there is passed over.
        served: model file that is served.
    """
    if not isinstance(quality, Mapping):
        return None
    gate = quality.get("gate")
    gate = gate if isinstance(gate, Mapping) else {}
    latencies = quality.get("latency_ms")
    outcome = gate.get("outcome")
    found = QualityObservation(
        served=served,
        accuracy=_numbers(quality.get("accuracy")),
        latency_ms={
            str(name): _numbers(by_shape)
            for name, by_shape in (latencies.items() if isinstance(latencies, Mapping) else ())
        },
        max_drop=_numbers(gate).get("max_drop"),
        gate_outcome=outcome if isinstance(outcome, str) else None,
    )
    return found if found.accuracy or found.latency_ms else None


def _numbers(values: Any) -> dict[str, float]:
    if not isinstance(values, Mapping):
        return {}
    return {
        str(name): float(value)
        for name, value in values.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        # No accuracy or time is over it; JSON may hold infinity, and integers of any length.
        and abs(value) <= _MOST
    }
