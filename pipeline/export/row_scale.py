"""INT8 with one scale of the activations for each token: no answer depends on its batch mates.

The dynamic quantisation of ONNX Runtime scales a whole padded batch by its largest value, so a
text's logits move with the texts beside it. Scaling each token by itself (per-token
quantisation: Yao et al. 2022, "ZeroQuant", section 3.2, https://arxiv.org/abs/2206.01861) takes
that away: integer products are exact, and each row of one is scaled back by its own factor.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from pipeline.export.int8_graph import (
    QUANTIZED_SUFFIX,
    PreparedGraph,
    QuantizedWeights,
    drop_unused_weights,
    read_back,
    save_graph,
)
from pipeline.export.weighted_nodes import float_weights

_DOMAIN = "com.microsoft"
_CONSTANTS = {
    "row_scale_step": np.float32(1 / 127),
    # A row of zeros is divided by it and stays zeros.
    "row_scale_smallest": np.float32(1e-12),
    "row_scale_one": np.float32(1.0),
    "row_scale_zero_point": np.uint8(128),
}
_STEP, _SMALLEST, _ONE, _ZERO_POINT = _CONSTANTS
_LARGEST_8_BITS = 127
_LARGEST_7_BITS = 64
"""As ONNX Runtime's reduce_range: 2 * 255 * 64 still fits the 16 bits of a sum of two products."""


def quantize_rows(
    prepared: PreparedGraph, target: Path, *, per_channel: bool, reduce_range: bool
) -> QuantizedWeights:
    """Write the INT8 model whose activations have one scale for each token.

    Args:
        prepared: of :func:`prepare_graph`, with at least one product.
        target: file to write.
        per_channel: one scale for each column of a weight, or one for the matrix.
        reduce_range: weights of 7 bits, -64 to 64, or of 8.

    Raises:
        ExportError: the written file is not as asked.
    """
    model = onnx.ModelProto()
    model.CopyFrom(prepared.model)
    writer = _RowWriter(model.graph, per_channel=per_channel, reduce_range=reduce_range)
    writer.replace(prepared.products)
    if _DOMAIN not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    save_graph(model, target)
    return read_back(target, prepared)


def quantize_weight(
    weight: NDArray[np.float32], *, per_channel: bool, reduce_range: bool
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a weight ``[in, out]`` as int8 and its scales, ``[out]`` or ``[]``.

    Symmetric, ``weight = int8 * scale``; a column of zeros has scale 1.

    Example: ``[[0.5, 0.0], [-1.0, 0.0]]``, 8 bits, per channel -> ``[[64, 0], [-127, 0]]`` and
    ``[1 / 127, 1]``.
    """
    largest = _LARGEST_7_BITS if reduce_range else _LARGEST_8_BITS
    reach = np.abs(weight).max(axis=0 if per_channel else None)
    scale = np.where(reach > 0, reach / largest, 1.0).astype(np.float32)
    whole = np.clip(np.rint(weight / scale), -largest, largest)
    return whole.astype(np.int8), scale


class _RowWriter:
    """Replaces products of a graph; equal inputs and equal weights are quantised once."""

    def __init__(self, graph: onnx.GraphProto, *, per_channel: bool, reduce_range: bool) -> None:
        self._graph = graph
        self._per_channel = per_channel
        self._reduce_range = reduce_range
        self._weights = float_weights(graph)
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: set[str] = set()
        self._quantized: set[str] = set()

    def replace(self, products: Sequence[str]) -> None:
        """Write the named MatMul nodes as integer products with a scale for each row."""
        for node in self._graph.node:
            if node.name in products:
                self._add_product(node)
            else:
                self._nodes.append(node)
        for name, value in _CONSTANTS.items():
            self._graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        nodes = list(self._nodes)
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        drop_unused_weights(self._graph)

    def _add_product(self, node: onnx.NodeProto) -> None:
        hidden, weight = node.input
        self._quantize_input(hidden)
        self._quantize_weight(weight)
        product = f"{node.output[0]}/unscaled"
        self._nodes.append(
            helper.make_node(
                "MatMulIntegerToFloat",
                [f"{hidden}/rows", f"{weight}/int8", _ONE, f"{weight}/scale", _ZERO_POINT],
                [product],
                name=node.name + QUANTIZED_SUFFIX,
                domain=_DOMAIN,
            )
        )
        self._add("Mul", [product, f"{hidden}/row_scale"], node.output[0])

    def _quantize_weight(self, name: str) -> None:
        if name in self._quantized:
            return
        self._quantized.add(name)
        whole, scale = quantize_weight(
            numpy_helper.to_array(self._weights[name]),
            per_channel=self._per_channel,
            reduce_range=self._reduce_range,
        )
        self._graph.initializer.append(numpy_helper.from_array(whole, f"{name}/int8"))
        self._graph.initializer.append(numpy_helper.from_array(scale, f"{name}/scale"))

    def _quantize_input(self, hidden: str) -> None:
        # q, k and v read one input.
        if hidden in self._inputs:
            return
        self._inputs.add(hidden)
        largest, least = f"{hidden}/row_largest", f"{hidden}/row_least"
        # The largest absolute value; ReduceMax(Abs) was slower (MiniLM, 2 threads).
        self._add("ReduceMax", [hidden], largest, axes=[-1], keepdims=1)
        self._add("ReduceMin", [hidden], least, axes=[-1], keepdims=1)
        self._add("Neg", [least], f"{least}/negated")
        self._add("Max", [largest, f"{least}/negated"], f"{hidden}/row_reach")
        self._add("Mul", [f"{hidden}/row_reach", _STEP], f"{hidden}/row_step")
        self._add("Max", [f"{hidden}/row_step", _SMALLEST], f"{hidden}/row_scale")
        self._add("Div", [hidden, f"{hidden}/row_scale"], f"{hidden}/row_units")
        self._add("QuantizeLinear", [f"{hidden}/row_units", _ONE, _ZERO_POINT], f"{hidden}/rows")

    def _add(self, op_type: str, inputs: list[str], output: str, **attributes: Any) -> None:
        name = f"{output}/{op_type}"
        self._nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
