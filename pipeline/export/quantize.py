"""INT8: dynamic quantisation of the encoder's weights, everything else kept float."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from pipeline.contract.errors import ExportError

_WEIGHTED_OPS = ("MatMul", "Gather", "Gemm")


@dataclass(frozen=True, kw_only=True)
class QuantizedWeights:
    """What the written INT8 file holds, read back from it."""

    int8: tuple[str, ...]
    """Names of the matrix products that became INT8."""
    kept_float: tuple[str, ...]
    """Names of the nodes that kept their float weights."""


def quantize_graph(source: Path, target: Path, *, keep_float: Sequence[str]) -> QuantizedWeights:
    """Write the INT8 model of an unfused FP32 graph.

    Quantised before fusion on purpose: measured on MiniLM, the result is as accurate as
    the fused and then quantised graph, at least as fast (ONNX Runtime fuses the integer
    products when it loads the file), and its nodes still bear the names of their modules.

    Args:
        source: FP32 graph with node names as the exporter gave them.
        target: file to write.
        keep_float: module names such as ``classifier``; every weight below them stays float.

    Raises:
        ExportError: a module name matches no weight in the graph, nothing is left to
            quantise, or the written file is not as asked.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".quantize-") as folder:
        prepared = Path(folder) / "prepared.onnx"
        _prepare(source, prepared)
        graph = onnx.load(str(prepared)).graph
        excluded = resolve_modules(graph, keep_float)
        expected = [node for node in _matrix_products(graph) if node.name not in excluded]
        if not expected:
            raise ExportError("no weight is left to quantise", value=list(keep_float))
        quantize_dynamic(
            prepared,
            target,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=excluded,
            weight_type=QuantType.QInt8,
            # Halved the error of the logits on MiniLM, at the same speed.
            per_channel=True,
            # 7-bit weights: on CPUs without VNNI 8-bit products saturate, and the accuracy
            # would not be the one that was judged here. Cost nothing measurable.
            reduce_range=True,
        )
    return _read_back(target, excluded=excluded, expected=[node.name for node in expected])


def resolve_modules(graph: onnx.GraphProto, modules: Sequence[str]) -> list[str]:
    """Return the names of the nodes with weights below the given modules.

    A node's name is the path of its module: ``/pooler/dense/Gemm`` is below ``pooler``.

    Raises:
        ExportError: a module has no such node.
    """
    weights = {tensor.name for tensor in graph.initializer}
    weighted = [
        node.name
        for node in graph.node
        if node.op_type in _WEIGHTED_OPS and any(name in weights for name in node.input)
    ]
    names: list[str] = []
    for module in modules:
        found = [name for name in weighted if module in name.split("/")]
        if not found:
            raise ExportError(
                "no weight of the graph is in the module that must stay float",
                value=module,
                remedy="Name a module of the exported model.",
            )
        names += found
    return names


def _prepare(source: Path, target: Path) -> None:
    from onnxruntime.quantization import quant_pre_process
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load(str(source)))
    # quantize_dynamic does this itself, and only then looks for the names to exclude.
    model.replace_gemm_with_matmul()
    quant_pre_process(model.model, target, skip_optimization=True, skip_symbolic_shape=True)


def _matrix_products(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    weights = {tensor.name for tensor in graph.initializer}
    return [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights]


def _read_back(path: Path, *, excluded: list[str], expected: list[str]) -> QuantizedWeights:
    graph = onnx.load(str(path)).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes = {node.name: node for node in graph.node}
    kept = [
        name
        for name in excluded
        if name in nodes
        and any(types.get(weight) == onnx.TensorProto.FLOAT for weight in nodes[name].input)
    ]
    integer = [
        node.name.removesuffix("_quant")
        for node in graph.node
        if node.op_type == "MatMulInteger" and types.get(node.input[1]) == onnx.TensorProto.INT8
    ]
    for wanted, found, kind in ((excluded, kept, "FLOAT"), (expected, integer, "INT8")):
        wrong = sorted(set(wanted) ^ set(found))
        if wrong:
            raise ExportError(f"the written weights must be {kind}", place=path.name, value=wrong)
    return QuantizedWeights(int8=tuple(integer), kept_float=tuple(kept))
