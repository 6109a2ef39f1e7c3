from pathlib import Path

import onnx
import pytest
from export_samples import LABELS, build_architecture, build_classifier

from pipeline.config import Task
from pipeline.contract.errors import ExportError
from pipeline.export.build import modules_outside_encoder
from pipeline.export.onnx_graph import export_graph
from pipeline.export.quantize import quantize_graph

_KEEP_FLOAT = ["embeddings", "pooler", "classifier"]


def _types(path: Path) -> dict[str, int]:
    return {item.name: item.data_type for item in onnx.load(path).graph.initializer}


def _inputs(path: Path, *, node_contains: str, op_type: str) -> list[str]:
    return [
        name
        for node in onnx.load(path).graph.node
        if node.op_type == op_type and node_contains in node.name
        for name in node.input
    ]


def test_the_encoder_is_int8_and_the_rest_is_float(plain_graph: Path, tmp_path: Path) -> None:
    target = tmp_path / "int8.onnx"

    weights = quantize_graph(plain_graph, target, keep_float=_KEEP_FLOAT)

    types = _types(target)
    assert len(weights.int8) == 2 * 6
    assert all("/encoder/layer." in name for name in weights.int8)
    encoder = _inputs(target, node_contains="/encoder/", op_type="MatMulInteger")
    assert sum(types.get(name) == onnx.TensorProto.INT8 for name in encoder) >= 2 * 6
    for part, op_type in (("word_emb", "Gather"), ("pooler", "MatMul"), ("classifier", "MatMul")):
        stored = _inputs(target, node_contains=part, op_type=op_type)
        assert onnx.TensorProto.FLOAT in [types.get(name) for name in stored], part


def test_no_quantised_copy_of_a_float_weight_stays_in_the_file(
    plain_graph: Path, tmp_path: Path
) -> None:
    quantize_graph(plain_graph, tmp_path / "int8.onnx", keep_float=_KEEP_FLOAT)

    graph = onnx.load(tmp_path / "int8.onnx").graph
    used = {name for node in graph.node for name in node.input}
    assert [item.name for item in graph.initializer if item.name not in used] == []


def test_a_renamed_head_stays_float_under_its_new_name(plain_graph: Path, tmp_path: Path) -> None:
    model = onnx.load(plain_graph)
    for node in model.graph.node:
        node.name = node.name.replace("/classifier/", "/head/")
    onnx.save(model, tmp_path / "renamed.onnx")

    weights = quantize_graph(
        tmp_path / "renamed.onnx",
        tmp_path / "int8.onnx",
        keep_float=["embeddings", "pooler", "head"],
    )

    assert "/head/Gemm_MatMul" in weights.kept_float


def test_a_module_that_matches_no_weight_is_an_error(plain_graph: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"must stay float \(got 'class'\)"):
        quantize_graph(plain_graph, tmp_path / "int8.onnx", keep_float=["embeddings", "class"])

    assert list(tmp_path.iterdir()) == []


def test_nothing_left_to_quantise_writes_nothing(plain_graph: Path, tmp_path: Path) -> None:
    keep_float = [*_KEEP_FLOAT, "encoder"]

    assert quantize_graph(plain_graph, tmp_path / "int8.onnx", keep_float=keep_float) is None

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_head_over_every_token_stays_float(tmp_path: Path) -> None:
    model = build_classifier(build_architecture(Task.TOKEN))
    plain = tmp_path / "plain.onnx"
    export_graph(model, plain, opset=14, task=Task.TOKEN, num_labels=len(LABELS))

    modules = modules_outside_encoder(model)
    weights = quantize_graph(plain, tmp_path / "int8.onnx", keep_float=modules)

    assert modules == ["embeddings", "classifier"]
    assert "/classifier/MatMul" in weights.kept_float
