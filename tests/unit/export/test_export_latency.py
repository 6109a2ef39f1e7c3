from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.latency import latency_shapes, measure_latencies, shape_name


class Recorder:
    """Models whose runs move the clock and are written down in their order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[tuple[str, tuple[int, ...]]] = []

    def build_run(self, name: str, *, seconds: float):  # type: ignore[no-untyped-def]
        def run(input_ids: IntArray, mask: IntArray) -> NDArray[np.float32]:
            assert mask.all()
            is_first = not self.order or self.order[-1][0] != name
            self.order.append((name, input_ids.shape))
            # The first run of a turn is the slow one, as in life.
            self.now += 9.0 if is_first else seconds * len(input_ids)
            return np.zeros((len(input_ids), 2), dtype=np.float32)

        return run

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("max_seq_len", "seq_lens"),
    [
        (512, [16, 64, 256]),
        (256, [16, 64, 256]),
        (128, [16, 64, 128]),
        (64, [16, 64]),
        (24, [16, 24]),
        (16, [16]),
        (3, [3]),
    ],
)
def test_the_longest_text_stands_in_for_the_first_length_over_it(
    max_seq_len: int, seq_lens: list[int]
) -> None:
    expected = [(batch, seq_len) for batch in (1, 32) for seq_len in seq_lens]

    assert latency_shapes(max_seq_len) == expected


def test_latencies_are_medians_in_milliseconds_by_model_and_shape() -> None:
    recorder = Recorder()
    runs = {
        name: recorder.build_run(name, seconds=seconds)
        for name, seconds in {"a": 0.001, "b": 0.002}.items()
    }

    figures = measure_latencies(runs, [(1, 16), (32, 256)], vocab_size=30, clock=recorder.clock)

    assert figures == {"a": {"1x16": 1.0, "32x256": 32.0}, "b": {"1x16": 2.0, "32x256": 64.0}}


def test_models_take_turns_and_each_round_starts_with_another_one() -> None:
    recorder = Recorder()
    runs = {name: recorder.build_run(name, seconds=0.001) for name in ("a", "b", "c")}

    measure_latencies(runs, [(32, 256)], vocab_size=30, clock=recorder.clock)

    assert [name for name, _ in recorder.order[::2]] == [*"abc", *"bca", *"cab"]
    assert Counter(name for name, _ in recorder.order) == {"a": 6, "b": 6, "c": 6}


def test_small_shapes_are_run_more_often() -> None:
    recorder = Recorder()
    run = recorder.build_run("a", seconds=0.001)

    measure_latencies({"a": run}, [(1, 16), (32, 64)], vocab_size=30, clock=recorder.clock)

    assert Counter(shape for _, shape in recorder.order) == {(1, 16): 45, (32, 64): 10}


def test_nothing_to_time_is_refused() -> None:
    with pytest.raises(ExportError, match="there is nothing to time"):
        measure_latencies({}, [(1, 16)], vocab_size=30)
    with pytest.raises(ExportError, match="there is nothing to time"):
        measure_latencies({"a": lambda ids, mask: np.zeros(1)}, [], vocab_size=30)  # type: ignore[dict-item]


def test_a_shape_is_named_batch_by_seq() -> None:
    assert shape_name((32, 64)) == "32x64"
