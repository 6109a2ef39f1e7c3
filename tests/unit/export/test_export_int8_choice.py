from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from export_samples import build_architecture, build_classifier
from int8_samples import (
    Mixed,
    TwoLayerHead,
    spoil,
    write_graph,
)
from numpy.typing import NDArray
from torch import nn

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.build import modules_outside_encoder
from pipeline.export.int8_choice import Candidate, choose, explain, write_int8
from pipeline.export.int8_graph import QuantizedWeights, prepare_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.quantize import quantize_tensors
from pipeline.export.row_logits import mean_error, run_rows
from pipeline.export.row_scale import quantize_rows

_KEEP_FLOAT = ["embeddings", "pooler", "classifier"]
_ROWS = [np.arange(3, 3 + length, dtype=np.int32) for length in (2, 5, 9, 16)]


class TurningClock:
    """Goes on by as much as a function says each time it is asked."""

    def __init__(self, step_s: Callable[[int], float]) -> None:
        self._step_s = step_s
        self._asked = 0
        self._now_s = 0.0

    def __call__(self) -> float:
        self._asked += 1
        self._now_s += self._step_s(self._asked)
        return self._now_s


def _write(plain: Path, target: Path, **changes: Any) -> dict[str, Any] | None:
    values: dict[str, Any] = {
        "keep_float": _KEEP_FLOAT,
        "extra_keep_float": (),
        "activations": "tensor",
        "rows": _ROWS,
        "pad_token_id": 0,
        "clock": TurningClock(lambda _: 0.001),
    }
    return write_int8(plain, target, **{**values, **changes})


def _candidates(
    errors: Sequence[float], column_rounds_ms: Sequence[float] = (10.0, 10.0)
) -> list[Candidate]:
    """Errors of column/7, column/8, matrix/7, matrix/8; the matrix takes 10 ms in each round."""
    ways = [(True, True), (True, False), (False, True), (False, False)]
    return [
        Candidate(
            per_channel=per_channel,
            reduce_range=reduce_range,
            mean_error=error,
            latency_ms={"1x8": 10.0},
            rounds_ms=column_rounds_ms if per_channel else [10.0] * len(column_rounds_ms),
        )
        for (per_channel, reduce_range), error in zip(ways, errors, strict=True)
    ]


@pytest.mark.parametrize(
    ("errors", "column_rounds_ms", "way"),
    [
        ([1.0, 1.0, 2.0, 2.0], (10.0, 10.0), (True, True)),
        ([2.0, 2.0, 1.0, 1.0], (10.0, 10.0), (False, True)),
        # At equal errors the simpler way.
        ([1.0, 1.0, 1.0, 1.0], (10.0, 10.0), (False, True)),
        # Over 5 % slower in every round, and in all but one.
        ([1.0, 1.0, 2.0, 2.0], (10.6, 10.7), (False, True)),
        ([1.0, 1.0, 2.0, 2.0], (10.4, 90.0), (True, True)),
        # The eighth bit takes 10 % and 11 % off the error.
        ([1.0, 0.9, 2.0, 2.0], (10.0, 10.0), (True, True)),
        ([1.0, 0.89, 2.0, 2.0], (10.0, 10.0), (True, False)),
        ([2.0, 2.0, 1.0, 0.5], (10.0, 10.0), (False, False)),
        # A clock that shows no time decides nothing.
        ([1.0, 1.0, 2.0, 2.0], (0.0, 0.0), (True, True)),
        ([float("inf"), float("inf"), 2.0, 2.0], (10.0, 10.0), (False, True)),
    ],
)
def test_the_choice_follows_errors_and_times(errors, column_rounds_ms, way) -> None:
    chosen = choose(_candidates(errors, column_rounds_ms))

    assert (chosen.per_channel, chosen.reduce_range) == way


def test_logits_that_are_finite_in_no_way_are_refused() -> None:
    with pytest.raises(ExportError, match="INT8 model are not finite"):
        choose(_candidates([float("inf")] * 4))


def test_the_sentence_holds_the_figures_and_the_reason() -> None:
    candidates = _candidates([0.0026, 0.0025, 0.0046, 0.004])

    assert explain(choose(candidates), candidates) == (
        "INT8 has 7-bit weights, one scale for each column: its logits are off by 0.0026 on "
        "average, with one scale for each matrix by 0.0046 in 1.00 times its time; the eighth bit "
        "would take 3.8% off the error, less than 10%; 8-bit sums saturate on CPUs without VNNI"
    )


@pytest.mark.slow
@pytest.mark.parametrize("activations", ["tensor", "row"])
def test_the_chosen_file_alone_stays_and_is_described(
    plain_graph: Path, tmp_path: Path, activations: str
) -> None:
    target = tmp_path / "model_int8.onnx"

    figures = _write(plain_graph, target, activations=activations)

    assert figures is not None
    assert list(tmp_path.iterdir()) == [target]
    assert figures["activations"] == activations
    assert len(figures["int8"]) == 2 * 6
    assert "/classifier/Gemm_MatMul" in figures["kept_float"]
    assert [(item["per_channel"], item["reduce_range"]) for item in figures["candidates"]] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]
    assert all(0 < item["mean_error"] < 0.1 for item in figures["candidates"])
    assert figures["candidates"][0]["latency_ms"] == {"1x9": 1.0, "16x9": 1.0}
    largest = max(
        np.abs(onnx.numpy_helper.to_array(item)).max()
        for item in onnx.load(target).graph.initializer
        if item.data_type == onnx.TensorProto.INT8 and len(item.dims) == 2
    )
    assert largest == (64 if figures["reduce_range"] else 127)


@pytest.mark.slow
def test_extra_names_stay_float_in_the_file(plain_graph: Path, tmp_path: Path) -> None:
    figures = _write(
        plain_graph,
        tmp_path / "int8.onnx",
        extra_keep_float=["encoder.layer.0", "encoder.layer.1.attention.self.query"],
    )

    assert figures is not None
    assert len(figures["int8"]) == 5
    assert all("/layer.1/" in name for name in figures["int8"])
    graph = onnx.load(tmp_path / "int8.onnx").graph
    types = {item.name: item.data_type for item in graph.initializer}
    query = next(
        node for node in graph.node if node.name.endswith("layer.1/attention/self/query/MatMul")
    )
    assert types[query.input[1]] == onnx.TensorProto.FLOAT


def test_a_name_that_matches_no_weight_is_refused_with_near_ones(
    plain_graph: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=r"got 'encoder\.layers\.0'.*encoder\.layer\.0[,.]"):
        _write(plain_graph, tmp_path / "int8.onnx", extra_keep_float=["encoder.layers.0"])

    assert list(tmp_path.iterdir()) == []


def test_with_everything_kept_float_there_is_no_file(plain_graph: Path, tmp_path: Path) -> None:
    assert _write(plain_graph, tmp_path / "int8.onnx", extra_keep_float=["encoder"]) is None

    assert list(tmp_path.iterdir()) == []


def test_no_rows_to_measure_on_is_refused(plain_graph: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="there are none"):
        _write(plain_graph, tmp_path / "int8.onnx", rows=[])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_failure_while_measuring_leaves_no_candidates(plain_graph: Path, tmp_path: Path) -> None:
    def fail() -> float:
        raise OSError("the clock stopped")

    with pytest.raises(OSError, match="clock stopped"):
        _write(plain_graph, tmp_path / "int8.onnx", clock=fail)

    assert list(tmp_path.iterdir()) == []


def test_an_error_that_is_no_number_counts_as_infinite() -> None:
    nan, zeros = np.array([np.nan, 0.0], np.float32), np.zeros(2, np.float32)

    assert mean_error([zeros, nan], [zeros, zeros]) == float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("quantize", [quantize_tensors, quantize_rows])
def test_both_linears_of_a_renamed_head_stay_float(
    tmp_path: Path, quantize: Callable[..., QuantizedWeights]
) -> None:
    model = TwoLayerHead()
    plain = write_graph(model, tmp_path / "plain.onnx")
    prepared = prepare_graph(plain, keep_float=modules_outside_encoder(model))

    weights = quantize(prepared, tmp_path / "int8.onnx", per_channel=True, reduce_range=True)

    assert len(weights.int8) == 2 * 6
    assert all("/encoder/" in name for name in weights.int8)
    assert {"/head/head.0/Gemm_MatMul", "/head/head.2/Gemm_MatMul"} <= set(weights.kept_float)


@pytest.mark.slow
def test_a_model_of_unknown_modules_becomes_int8_up_to_its_logits(tmp_path: Path) -> None:
    plain = write_graph(Mixed(), tmp_path / "plain.onnx")

    figures = _write(
        plain,
        tmp_path / "int8.onnx",
        keep_float=None,
        extra_keep_float=["layers.1", "shared"],
    )

    assert figures is not None
    assert len(figures["int8"]) == 11 + 2 + 2
    assert "/layers.10/MatMul" in figures["int8"]
    assert sorted(figures["kept_float"]) == [
        "/layers.1/MatMul",
        "/score/Gemm_MatMul",
        "/shared/MatMul",
        "/shared_1/MatMul",
    ]


def test_rows_are_answered_in_their_order_and_without_padding() -> None:
    def label_tokens(input_ids: IntArray, attention_mask: IntArray) -> NDArray[np.float32]:
        return np.stack([input_ids, attention_mask], axis=2).astype(np.float32)

    logits = run_rows(label_tokens, _ROWS[::-1], pad_token_id=0, batch_rows=3)

    assert [len(row) for row in logits] == [16, 9, 5, 2]
    assert all((row[:, 1] == 1).all() for row in logits)
    assert [row[-1, 0] for row in logits] == [18, 11, 7, 4]


@pytest.mark.slow
def test_int8_is_far_off_where_weights_have_an_outlier_channel(tmp_path: Path) -> None:
    def error_of(model: nn.Module) -> float:
        plain = write_graph(model, tmp_path / "plain.onnx")
        prepared = prepare_graph(plain, keep_float=_KEEP_FLOAT)
        quantize_tensors(prepared, tmp_path / "int8.onnx", per_channel=True, reduce_range=True)
        right, logits = (
            run_rows(open_model(path), _ROWS, pad_token_id=0)
            for path in (plain, tmp_path / "int8.onnx")
        )
        return mean_error(logits, right)

    model = build_classifier(build_architecture())
    usual = error_of(model)
    spoil(model)

    assert error_of(model) > 10 * usual
