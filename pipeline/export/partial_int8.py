"""Graphs in which some matrix products are INT8 and the others float, from one quantised file."""

from collections.abc import Collection

import onnx

from pipeline.export.int8_graph import PreparedGraph
from pipeline.export.weighted_nodes import used_names


class PartialInt8:
    """A float graph and its INT8 twin, put together product by product.

    Quantising again for every set of products would take minutes; a product's integer nodes
    are the same whatever else is quantised.
    """

    def __init__(self, prepared: PreparedGraph, quantized: onnx.ModelProto) -> None:
        """Keep both graphs; ``quantized`` holds all of ``prepared.products`` as INT8."""
        self._plain = prepared.model
        self._quantized = quantized
        self._outputs = {
            node.name: node.output[0]
            for node in prepared.model.graph.node
            if node.name in prepared.products
        }
        self._makers = {name: node for node in quantized.graph.node for name in node.output}
        self._known = {value.name for value in prepared.model.graph.input} | {
            name
            for node in prepared.model.graph.node
            if node.name not in self._outputs
            for name in node.output
        }

    def build(self, products: Collection[str]) -> onnx.ModelProto:
        """Return a model in which exactly the named products are INT8."""
        model = self._skeleton()
        # A float product's output is known beside those of every other node.
        known = self._known | {
            output for name, output in self._outputs.items() if name not in products
        }
        nodes: list[onnx.NodeProto] = []
        for node in self._plain.graph.node:
            if node.name in products:
                self._collect(node.output[0], known, nodes)
            else:
                nodes.append(node)
        model.graph.node.extend(nodes)
        needed = used_names(model.graph)
        weights = {tensor.name: tensor for tensor in self._plain.graph.initializer}
        weights |= {tensor.name: tensor for tensor in self._quantized.graph.initializer}
        model.graph.initializer.extend(tensor for name, tensor in weights.items() if name in needed)
        return model

    def _collect(self, output: str, known: set[str], nodes: list[onnx.NodeProto]) -> None:
        # The integer nodes behind an output, inputs first, down to what the float graph has.
        if output in known or output not in self._makers:
            return
        node = self._makers[output]
        for name in node.input:
            self._collect(name, known, nodes)
        nodes.append(node)
        known.update(node.output)

    def _skeleton(self) -> onnx.ModelProto:
        graph = onnx.GraphProto(name=self._plain.graph.name)
        graph.input.extend(self._plain.graph.input)
        graph.output.extend(self._plain.graph.output)
        return onnx.ModelProto(
            ir_version=self._quantized.ir_version,
            opset_import=self._quantized.opset_import,
            graph=graph,
        )
