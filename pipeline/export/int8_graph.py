"""What every way to INT8 begins and ends with: the prepared graph and the check of the file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from pipeline.contract.errors import ExportError
from pipeline.export.weighted_nodes import (
    find_last_products,
    matrix_products,
    resolve_modules,
    used_names,
)

QUANTIZED_SUFFIX = "_quant"
"""Ends the name of the node that a matrix product became."""
_INTEGER_OPS = ("MatMulInteger", "MatMulIntegerToFloat")


@dataclass(frozen=True, kw_only=True)
class PreparedGraph:
    """An FP32 graph in memory and which of its matrix products are to be INT8."""

    model: onnx.ModelProto
    """Every Gemm written as MatMul and Add; nobody may change it."""
    products: tuple[str, ...]
    """Names of the matrix products to quantise, in the order of the graph."""
    kept_float: tuple[str, ...]
    """Names of the nodes whose weights must stay float."""


@dataclass(frozen=True, kw_only=True)
class QuantizedWeights:
    """What the written INT8 file holds, read back from it."""

    int8: tuple[str, ...]
    """Names of the matrix products that became INT8."""
    kept_float: tuple[str, ...]
    """Names of the nodes that kept their float weights."""


def prepare_graph(
    source: Path, *, keep_float: Sequence[str] | None, extra_keep_float: Sequence[str] = ()
) -> PreparedGraph:
    """Return an unfused FP32 graph ready for quantisation.

    Args:
        source: FP32 graph with node names as the exporter gave them.
        keep_float: module names such as ``classifier``; every weight below them stays float.
            None, where no names are known: what :func:`find_last_products` finds.
        extra_keep_float: further names, of the setting ``export.keep_float``.

    Raises:
        ExportError: a name matches no weight in the graph.
    """
    from onnxruntime.quantization.onnx_model import ONNXModel
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = load_graph(source)
    _drop_weight_aliases(model.graph)
    # quantize_dynamic does this itself, and only then looks for the names it is given.
    ONNXModel(model).replace_gemm_with_matmul()
    drop_unused_weights(model.graph)
    # What preprocessing does beyond this (shapes) quantize_dynamic does as well.
    add_pre_process_metadata(model)
    graph = model.graph
    kept = find_last_products(graph) if keep_float is None else resolve_modules(graph, keep_float)
    kept += [name for name in resolve_modules(graph, extra_keep_float) if name not in kept]
    products = [node.name for node in matrix_products(graph) if node.name not in kept]
    return PreparedGraph(model=model, products=tuple(products), kept_float=tuple(kept))


def read_back(path: Path, prepared: PreparedGraph) -> QuantizedWeights:
    """Return what a written INT8 file holds.

    Raises:
        ExportError: a weight is not of the type that it must be of, with the nodes' names.
    """
    graph = load_graph(path).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes = {node.name: node for node in graph.node}
    kept = [
        name
        for name in prepared.kept_float
        if name in nodes
        and any(types.get(weight) == onnx.TensorProto.FLOAT for weight in nodes[name].input)
    ]
    integer = [
        node.name.removesuffix(QUANTIZED_SUFFIX)
        for node in graph.node
        if node.op_type in _INTEGER_OPS and types.get(node.input[1]) == onnx.TensorProto.INT8
    ]
    for wanted, found, kind in (
        (prepared.kept_float, kept, "FLOAT"),
        (prepared.products, integer, "INT8"),
    ):
        wrong = sorted(set(wanted) ^ set(found))
        if wrong:
            raise ExportError(f"the written weights must be {kind}", place=path.name, value=wrong)
    return QuantizedWeights(int8=tuple(integer), kept_float=tuple(kept))


def load_graph(path: Path) -> onnx.ModelProto:
    """Return a model file with all its weights."""
    return onnx.load(str(path))


def save_graph(model: onnx.ModelProto, path: Path) -> None:
    """Write a model file; everything of INT8 that is written goes through here."""
    onnx.save(model, str(path))


def drop_unused_weights(graph: onnx.GraphProto) -> None:
    """Take out the tensors that nothing reads any more; a file would carry them."""
    used = used_names(graph)
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)


def _drop_weight_aliases(graph: onnx.GraphProto) -> None:
    # torch writes equal weights once and an Identity for the second user (a module called twice
    # has one, too); behind it the weight would not be found and would stay float unnoticed.
    weights = {tensor.name for tensor in graph.initializer}
    aliases: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in weights | aliases.keys():
            aliases[node.output[0]] = aliases.get(node.input[0], node.input[0])
        for index, name in enumerate(node.input):
            node.input[index] = aliases.get(name, name)
    used = used_names(graph)
    for node in [node for node in graph.node if node.op_type == "Identity"]:
        if node.output[0] in aliases and node.output[0] not in used:
            graph.node.remove(node)
