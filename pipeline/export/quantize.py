"""INT8: dynamic quantisation of the encoder's weights, everything else kept float.

Of a model whose modules are unknown: of every matrix product but the last before the logits.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from pipeline.contract.errors import ExportError

_WEIGHTED_OPS = ("MatMul", "Gather", "Gemm")
_LAYER_OPS = (*_WEIGHTED_OPS, "Conv", "ConvTranspose", "GRU", "LSTM", "RNN")


@dataclass(frozen=True, kw_only=True)
class QuantizedWeights:
    """What the written INT8 file holds, read back from it."""

    int8: tuple[str, ...]
    """Names of the matrix products that became INT8."""
    kept_float: tuple[str, ...]
    """Names of the nodes that kept their float weights."""


def quantize_graph(
    source: Path, target: Path, *, keep_float: Sequence[str] | None
) -> QuantizedWeights | None:
    """Write the INT8 model of an unfused FP32 graph; None if no weight is left to quantise.

    Quantised before fusion on purpose: measured on MiniLM, the result is as accurate as
    the fused and then quantised graph, at least as fast (ONNX Runtime fuses the integer
    products when it loads the file), and its nodes still bear the names of their modules.

    Args:
        source: FP32 graph with node names as the exporter gave them.
        target: file to write.
        keep_float: module names such as ``classifier``; every weight below them stays float.
            None, where no names are known: what :func:`find_last_products` finds.

    Raises:
        ExportError: a module name matches no weight in the graph, or the written file is not
            as asked.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".quantize-") as folder:
        prepared = Path(folder) / "prepared.onnx"
        _prepare(source, prepared)
        graph = onnx.load(str(prepared)).graph
        if keep_float is None:
            excluded = find_last_products(graph)
        else:
            excluded = resolve_modules(graph, keep_float)
        expected = [node for node in _matrix_products(graph) if node.name not in excluded]
        if not expected:
            return None
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


def find_last_products(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the weighted products that make the logits, nothing weighted after them.

    Products with a vector or a stack of matrices are among them: INT8 is for matrices.

    Example: ``logits = Gemm(Relu(MatMul(x, a)), b)`` -> the Gemm alone. Empty where the logits
    come from another kind of layer, such as a convolution: those stay float anyway.
    """
    weights = {tensor.name for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    matrices = [node.name for node in _matrix_products(graph)]
    found = [
        node.name
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in weights and node.name not in matrices
    ]
    waiting, seen = [value.name for value in graph.output], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in makers:
            continue
        seen.add(name)
        node = makers[name]
        if node.op_type not in _LAYER_OPS or not weights.intersection(node.input):
            waiting += node.input
        elif node.op_type in ("MatMul", "Gemm") and node.name not in found:
            found.append(node.name)
    return found


def _prepare(source: Path, target: Path) -> None:
    from onnxruntime.quantization import quant_pre_process
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load(str(source)))
    # quantize_dynamic does this itself, and only then looks for the names to exclude.
    model.replace_gemm_with_matmul()
    quant_pre_process(model.model, target, skip_optimization=True, skip_symbolic_shape=True)


def _matrix_products(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    weights = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
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
