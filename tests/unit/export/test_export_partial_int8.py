import numpy as np
import onnx
import pytest
from int8_samples import Mixed, write_graph

from pipeline.contract.batching import pad_rows
from pipeline.export.int8_graph import load_graph, prepare_graph, save_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.partial_int8 import PartialInt8
from pipeline.export.quantize import quantize_tensors
from pipeline.export.row_scale import quantize_rows

_BATCH = pad_rows([[5, 6, 7, 8], [9], [1, 2]], pad_value=0)


@pytest.fixture(scope="module", params=[quantize_tensors, quantize_rows], ids=["tensor", "row"])
def twins(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("twins")
    plain = write_graph(Mixed(), folder / "plain.onnx")
    prepared = prepare_graph(plain, keep_float=None)
    request.param(prepared, folder / "int8.onnx", per_channel=True, reduce_range=True)
    return folder, prepared, PartialInt8(prepared, load_graph(folder / "int8.onnx"))


def _logits(partial, folder, products):
    save_graph(partial.build(products), folder / "trial.onnx")
    return open_model(folder / "trial.onnx", num_threads=1)(*_BATCH)


def test_with_every_product_it_is_the_int8_model(twins) -> None:
    folder, prepared, partial = twins

    logits = _logits(partial, folder, prepared.products)

    right = open_model(folder / "int8.onnx", num_threads=1)(*_BATCH)
    np.testing.assert_allclose(logits, right, rtol=0, atol=1e-6)


def test_with_none_it_is_the_float_model(twins) -> None:
    folder, _, partial = twins

    logits = _logits(partial, folder, ())

    right = open_model(folder / "plain.onnx", num_threads=1)(*_BATCH)
    np.testing.assert_allclose(logits, right, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["/shared/MatMul", "/layers.10/MatMul", "/text_1/Gemm_MatMul"])
def test_with_one_only_that_one_is_int8(twins, name) -> None:
    folder, prepared, partial = twins

    _logits(partial, folder, [name])

    graph = onnx.load(folder / "trial.onnx").graph
    products = [node.name for node in graph.node if node.op_type.startswith("MatMulInteger")]
    assert products == [f"{name}_quant"]
    plain = {node.name for node in graph.node if node.op_type == "MatMul"}
    assert plain == {*prepared.products, *prepared.kept_float} - {name}
