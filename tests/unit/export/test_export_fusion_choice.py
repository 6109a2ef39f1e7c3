import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.fusion_choice import FUSED, UNFUSED, FusionChoice, choose_fusion

COUNTS = {"Attention": 2, "Gelu": 2, "LayerNormalization": 4}


class Timed:
    """Two models and a clock that only their runs move."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.now = 0.0
        self.runs = {name: self._build_run(value) for name, value in seconds.items()}

    def _build_run(self, seconds: float):  # type: ignore[no-untyped-def]
        def run(input_ids: IntArray, _mask: IntArray) -> NDArray[np.float32]:
            self.now += seconds * input_ids.size
            return np.zeros((len(input_ids), 2), dtype=np.float32)

        return run

    def clock(self) -> float:
        return self.now


def _choose(fused: float, unfused: float) -> FusionChoice:
    timed = Timed({FUSED: fused, UNFUSED: unfused})
    shapes = [(1, 16), (32, 64)]
    return choose_fusion(timed.runs, shapes, counts=COUNTS, vocab_size=9, clock=timed.clock)


def test_a_clearly_faster_fused_graph_is_kept() -> None:
    choice = _choose(0.0008, 0.001)

    assert choice.kept == FUSED
    assert choice.as_figures() == {
        "kept": "fused",
        "counts": COUNTS,
        "latency_ms": {
            "fused": {"1x16": 12.8, "32x64": 1638.4},
            "unfused": {"1x16": 16.0, "32x64": 2048.0},
        },
        "speed_ratio": 1.25,
        "sentence": "the fused graph is kept: fused takes 20.0 % less time (3 % less is asked "
        "for); fused and unfused at batch × seq: 1x16 12.8 and 16 ms, 32x64 1638.4 and 2048 ms",
    }


@pytest.mark.parametrize(
    ("fused", "kept"), [(0.00097, FUSED), (0.00098, UNFUSED), (0.001, UNFUSED), (0.002, UNFUSED)]
)
def test_the_standard_graph_is_kept_unless_fusion_saves_three_per_cent(
    fused: float, kept: str
) -> None:
    assert _choose(fused, 0.001).kept == kept


def test_every_shape_counts_for_its_ratio_not_its_milliseconds() -> None:
    latency_ms = {FUSED: {"1x16": 1.0, "32x256": 1100.0}, UNFUSED: {"1x16": 2.0, "32x256": 1000.0}}

    choice = FusionChoice(counts=COUNTS, latency_ms=latency_ms)

    assert choice.time_ratio == pytest.approx((0.5 * 1.1) ** 0.5)
    assert choice.kept == FUSED


def test_a_slower_fused_graph_is_said_to_take_more_time() -> None:
    assert "unfused graph is kept: fused takes 10.0 % more time" in _choose(0.0011, 0.001).sentence


def test_other_models_than_the_two_graphs_are_refused() -> None:
    with pytest.raises(ExportError, match=r"must be fused and unfused \(got \['fused'\]\)"):
        choose_fusion(Timed({FUSED: 1.0}).runs, [(1, 16)], counts=COUNTS, vocab_size=9)


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(ExportError, match="the clock does not advance"):
        _choose(0.0, 0.001)
