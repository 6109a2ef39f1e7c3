"""Weight types of an INT8 model, read back from graphs of three nodes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipeline.contract.errors import ExportError
from pipeline.export.int8_weights import check_int8_weights


def _write(path: Path, *, inner: type, table: type) -> Path:
    """A table, a product as quantize_dynamic writes it, and one as the row variant does."""
    weights = [
        numpy_helper.from_array(np.zeros((4, 4), dtype=table), "table"),
        numpy_helper.from_array(np.zeros((4, 4), dtype=inner), "inner_weight"),
        numpy_helper.from_array(np.zeros((4, 4), dtype=np.int8), "row_weight"),
        numpy_helper.from_array(np.ones(4, dtype=np.float32), "row_scale"),
    ]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"], name="/embeddings/Gather"),
        helper.make_node("MatMulInteger", ["x", "inner_weight"], ["y"], name="/inner/MatMul_quant"),
        helper.make_node(
            "MatMulIntegerToFloat",
            ["x", "row_weight", "s", "row_scale"],
            ["logits"],
            name="/row/MatMul_quant",
            domain="com.microsoft",
        ),
    ]
    value = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    onnx.save(helper.make_model(helper.make_graph(nodes, "tiny", [], [value], weights)), path)
    return path


_INT8 = ["/inner/MatMul", "/row/MatMul"]
_FLOAT = ["/embeddings/Gather"]


def test_both_ways_of_writing_int8_are_read(tmp_path: Path) -> None:
    path = _write(tmp_path / "model_int8.onnx", inner=np.int8, table=np.float32)

    check_int8_weights(path, int8=_INT8, kept_float=_FLOAT)


@pytest.mark.parametrize(
    ("inner", "table", "message"),
    [
        (np.float32, np.float32, r"must be INT8 \(got \['/inner/MatMul'\]"),
        (np.int8, np.int8, r"must be FLOAT \(got \['/embeddings/Gather'\]"),
    ],
)
def test_a_weight_of_another_type_is_named(
    tmp_path: Path, inner: type, table: type, message: str
) -> None:
    path = _write(tmp_path / "model_int8.onnx", inner=inner, table=table)

    with pytest.raises(ExportError, match=rf"model_int8\.onnx: the weights of these .*{message}"):
        check_int8_weights(path, int8=_INT8, kept_float=_FLOAT)


def test_a_node_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "model_int8.onnx", inner=np.int8, table=np.float32)

    with pytest.raises(ExportError, match=r"must be INT8 \(got \['/inner'\]"):
        check_int8_weights(path, int8=["/inner"], kept_float=[])
