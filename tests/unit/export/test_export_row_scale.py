import numpy as np
import onnx
import pytest
import torch
from export_samples import MAX_SEQ_LEN, build_architecture, build_classifier
from hypothesis import given, settings
from hypothesis import strategies as st
from int8_samples import BareTokens, Mixed, write_graph

from pipeline.config import Task
from pipeline.contract.batching import pad_rows
from pipeline.export.build import modules_outside_encoder
from pipeline.export.int8_graph import prepare_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.row_scale import quantize_rows, quantize_weight

_ATOL = 1e-6
"""Integer products are exact; the float operators around them sum in another order by shape."""
_ROWS = st.lists(st.integers(1, 43), min_size=1, max_size=MAX_SEQ_LEN)


def _quantize(model, folder, *, task=Task.SEQUENCE, keep_float=None, **way):
    plain = write_graph(model, folder / "plain.onnx", task=task)
    prepared = prepare_graph(plain, keep_float=keep_float)
    way = {"per_channel": True, "reduce_range": True, **way}
    return plain, quantize_rows(prepared, folder / "int8.onnx", **way)


@pytest.fixture(scope="module", params=[Task.SEQUENCE, Task.TOKEN])
def row_model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    model = build_classifier(build_architecture(request.param))
    _quantize(model, folder, task=request.param, keep_float=modules_outside_encoder(model))
    return open_model(folder / "int8.onnx", num_threads=1)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, derandomize=True)
@given(row=_ROWS, mates=st.lists(_ROWS, min_size=1, max_size=4))
def test_a_text_has_the_same_logits_alone_padded_and_among_others(row_model, row, mates) -> None:
    alone = row_model(*pad_rows([row], pad_value=0))[0]

    padded = row_model(*pad_rows([row], pad_value=0, seq_len=MAX_SEQ_LEN))[0]
    among = row_model(*pad_rows([row, *mates], pad_value=0, seq_len=MAX_SEQ_LEN))[0]

    for other in (padded, among):
        same = other[: len(row)] if other.ndim == 2 else other
        np.testing.assert_allclose(same, alone, rtol=0, atol=_ATOL)


@pytest.mark.slow
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("reduce_range", [True, False])
def test_tokens_texts_and_shared_weights_stay_close_to_float(
    tmp_path, per_channel, reduce_range
) -> None:
    torch.manual_seed(0)
    plain, weights = _quantize(
        Mixed(), tmp_path, per_channel=per_channel, reduce_range=reduce_range
    )

    batch = pad_rows([[5, 6, 7, 8], [9], [1, 2]], pad_value=0)
    logits = open_model(tmp_path / "int8.onnx")(*batch)
    right = open_model(plain)(*batch)

    assert len(weights.int8) == 2 + 12 + 2 + 2
    assert weights.kept_float == ("/score/Gemm_MatMul",)
    assert 0 < np.abs(logits - right).max() < 0.1


def test_the_file_holds_int8_of_seven_bits_once_for_each_weight(tmp_path) -> None:
    _quantize(Mixed(), tmp_path)

    graph = onnx.load(tmp_path / "int8.onnx").graph
    integers = [item for item in graph.initializer if item.data_type == onnx.TensorProto.INT8]
    used = {name for node in graph.node for name in node.input}
    assert len(integers) == 1 + 12 + 2 + 1
    assert max(np.abs(onnx.numpy_helper.to_array(item)).max() for item in integers) == 64
    assert [item.name for item in graph.initializer if item.name not in used] == []
    matrices = [
        item
        for item in graph.initializer
        if len(item.dims) == 2 and item.data_type == onnx.TensorProto.FLOAT
    ]
    assert sorted(list(item.dims) for item in matrices) == [[8, 3], [44, 8]]


def test_rows_of_zeros_stay_zeros_and_give_no_nan(tmp_path) -> None:
    plain, _ = _quantize(BareTokens(), tmp_path, task=Task.TOKEN)

    batch = pad_rows([[5, 6], [7]], pad_value=0, seq_len=4)
    logits = open_model(tmp_path / "int8.onnx")(*batch)

    np.testing.assert_array_equal(logits[:, 2:], open_model(plain)(*batch)[:, 2:])
    all_zero = np.zeros((2, 3), dtype=np.int64)
    assert np.isfinite(open_model(tmp_path / "int8.onnx")(all_zero, all_zero)).all()


def test_a_column_of_zeros_has_scale_1() -> None:
    weight = np.array([[0.5, 0.0], [-1.0, 0.0]], dtype=np.float32)

    whole, scale = quantize_weight(weight, per_channel=True, reduce_range=False)

    assert whole.tolist() == [[64, 0], [-127, 0]]
    np.testing.assert_allclose(scale, [1 / 127, 1.0], rtol=1e-6)


def test_one_scale_for_the_matrix_is_that_of_its_largest_weight() -> None:
    weight = np.array([[0.5, 0.0], [-1.0, 0.25]], dtype=np.float32)

    whole, scale = quantize_weight(weight, per_channel=False, reduce_range=True)

    assert whole.tolist() == [[32, 0], [-64, 16]]
    assert scale == np.float32(1 / 64)
