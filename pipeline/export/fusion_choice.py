"""Fused or unfused: both are timed on the target and the faster one becomes the FP32 model."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.contract.errors import ExportError
from pipeline.export.latency import Shape, measure_latencies
from pipeline.export.onnx_session import LogitsFunction

FUSED, UNFUSED = "fused", "unfused"
MAX_TIME_RATIO = 0.97
"""Chosen: the fused graph must save this much, as the other has standard operators only and
runs anywhere."""


@dataclass(frozen=True, kw_only=True)
class FusionChoice:
    """The times of both graphs and which of them is kept."""

    counts: dict[str, int]
    """Fused operators by kind, in the fused graph."""
    latency_ms: Mapping[str, Mapping[str, float]]
    """``fused`` and ``unfused`` → shape such as ``1x16`` → median milliseconds."""

    @property
    def time_ratio(self) -> float:
        """The fused graph's time as a share of the other's: geometric mean over the shapes.

        Geometric, so that a shape counts for its ratio and not for its milliseconds (Fleming
        and Wallace 1986, "How not to lie with statistics", https://doi.org/10.1145/5666.5673).
        """
        fused, unfused = self.latency_ms[FUSED], self.latency_ms[UNFUSED]
        logs = [math.log(fused[shape] / unfused[shape]) for shape in unfused]
        return math.exp(sum(logs) / len(logs))

    @property
    def kept(self) -> Literal["fused", "unfused"]:
        """The graph that becomes the FP32 model."""
        # Rounded: a ratio of exactly the limit is computed as a hair over it.
        return "fused" if round(self.time_ratio, 9) <= MAX_TIME_RATIO else "unfused"

    @property
    def sentence(self) -> str:
        """What was decided and why, for people."""
        saved = (1 - self.time_ratio) * 100
        figures = ", ".join(
            f"{shape} {self.latency_ms[FUSED][shape]:g} and {value:g} ms"
            for shape, value in self.latency_ms[UNFUSED].items()
        )
        direction = "less" if saved >= 0 else "more"
        return (
            f"the {self.kept} graph is kept: fused takes {abs(saved):.1f} % {direction} time "
            f"({(1 - MAX_TIME_RATIO) * 100:.0f} % less is asked for); fused and unfused at "
            f"batch × seq: {figures}"
        )

    def as_figures(self) -> dict[str, Any]:
        """Return the choice as it stands in the bundle's manifest.

        ``speed_ratio`` is how many times as fast the fused graph is; over 1 is faster.
        """
        return {
            "kept": self.kept,
            "counts": self.counts,
            "latency_ms": {name: dict(values) for name, values in self.latency_ms.items()},
            "speed_ratio": round(1 / self.time_ratio, 4),
            "sentence": self.sentence,
        }


def choose_fusion(
    runs: Mapping[str, LogitsFunction],
    shapes: Sequence[Shape],
    *,
    counts: dict[str, int],
    vocab_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> FusionChoice:
    """Time the fused and the unfused graph in turns and return the choice.

    Args:
        runs: the two models, named ``fused`` and ``unfused``, on the target.
        shapes: of :func:`pipeline.export.latency.latency_shapes`.
        counts: fused operators by kind.
        vocab_size: the ids are below it.
        clock: seconds.

    Raises:
        ExportError: the models are not these two, or a run took no time at all.
    """
    if set(runs) != {FUSED, UNFUSED}:
        raise ExportError(f"the graphs to choose from must be {FUSED} and {UNFUSED}", value=[*runs])
    latency_ms = measure_latencies(runs, shapes, vocab_size=vocab_size, clock=clock)
    if not all(value > 0 for times in latency_ms.values() for value in times.values()):
        raise ExportError("the clock does not advance during a run", value=latency_ms)
    return FusionChoice(counts=counts, latency_ms=latency_ms)
