"""Reads back which weights of a written INT8 model are INT8 and which are float."""

from collections.abc import Sequence
from pathlib import Path

import onnx

from pipeline.contract.errors import ExportError
from pipeline.export.external_data import load_graph

_SUFFIX = "_quant"
"""What quantisation puts behind the name of a node that it replaces."""
_WORDS = {onnx.TensorProto.INT8: "INT8", onnx.TensorProto.FLOAT: "FLOAT"}


def check_int8_weights(path: Path, *, int8: Sequence[str], kept_float: Sequence[str]) -> None:
    """Check that the named nodes hold the weights that export read back.

    Args:
        path: the INT8 model.
        int8: nodes with an INT8 weight and no float matrix.
        kept_float: nodes with a float weight and no INT8 one.

    Raises:
        ExportError: a node is not there or holds another kind of weight; it names all such.
    """
    graph = load_graph(path).graph
    kinds = {tensor.name: (tensor.data_type, len(tensor.dims)) for tensor in graph.initializer}
    found: dict[str, set[int]] = {}
    for node in graph.node:
        weights = [kinds[name] for name in node.input if name in kinds]
        # Scales and zero points have no or one dimension, whatever they belong to.
        held = {kind for kind, dims in weights if dims >= 2 or node.op_type == "MatMul"}
        found.setdefault(node.name.removesuffix(_SUFFIX), set()).update(held)
    both = {onnx.TensorProto.INT8, onnx.TensorProto.FLOAT}
    for names, kind in ((int8, onnx.TensorProto.INT8), (kept_float, onnx.TensorProto.FLOAT)):
        wrong = sorted(name for name in names if found.get(name, set()) & both != {kind})
        if wrong:
            raise ExportError(
                f"the weights of these nodes must be {_WORDS[kind]}", place=path.name, value=wrong
            )
