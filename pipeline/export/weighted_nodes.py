"""Which nodes of a graph hold weights, and what people call them: the paths of their modules."""

import difflib
import re
from collections.abc import Iterator, Sequence

import onnx

from pipeline.contract.errors import ExportError

_LAYER_OPS = ("MatMul", "Gather", "Gemm", "Conv", "ConvTranspose", "GRU", "LSTM", "RNN")
_NUM_NEAR_NAMES = 5


def matrix_products(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the MatMul nodes whose second factor is a float matrix of the file, in order."""
    weights = {name for name, tensor in float_weights(graph).items() if len(tensor.dims) == 2}
    return [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights]


def float_weights(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the FLOAT tensors of the file by name."""
    kind = onnx.TensorProto.FLOAT
    return {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == kind}


def used_names(graph: onnx.GraphProto) -> set[str]:
    """Return every name that a node or an output reads, bodies of If and Loop included."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for body in bodies:
                names |= used_names(body)
    return names


def resolve_modules(graph: onnx.GraphProto, modules: Sequence[str]) -> list[str]:
    """Return the names of the nodes with weights below the given modules, each once.

    A node's name is the path of its module: ``/pooler/dense/Gemm`` is below ``pooler`` and
    ``pooler.dense``; ``layer.1`` is not above ``/layer.10/...``. A weight that several nodes use
    (a module called twice, tied weights) stays float in all of them.

    Raises:
        ExportError: a module has no such node; the nearest names are listed.
    """
    weights = float_weights(graph)
    nodes = {
        node.name: weights.keys() & set(node.input)
        for node in graph.node
        if node.op_type in _LAYER_OPS and weights.keys() & set(node.input)
    }
    names: dict[str, None] = {}
    for module in modules:
        wanted = tuple(re.split(r"[./]", module))
        found = [name for name in nodes if _is_below(name, wanted)]
        if not found:
            raise ExportError(
                "no weight of the graph is in the module that must stay float",
                value=module,
                remedy=_suggest(module, nodes),
            )
        shared = set().union(*(nodes[name] for name in found))
        names |= dict.fromkeys(name for name in nodes if nodes[name] & shared)
    return list(names)


def name_linears(graph: onnx.GraphProto, products: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the products by the name of their linear, nodes of one weight together.

    The name is one that :func:`resolve_modules` takes for exactly these nodes: the module's path
    such as ``encoder.layer.0.output.dense``, or the node's where a module has several.
    """
    by_weight: dict[str, list[str]] = {}
    for node in matrix_products(graph):
        if node.name in products:
            by_weight.setdefault(node.input[1], []).append(node.name)
    linears: dict[str, tuple[str, ...]] = {}
    for nodes in by_weight.values():
        module = ".".join(module_path(nodes[0])[:-1])
        is_own = bool(module) and set(resolve_modules(graph, [module])) == set(nodes)
        linears[module if is_own else nodes[0].lstrip("/")] = tuple(nodes)
    return linears


def module_path(node: str) -> tuple[str, ...]:
    """Return a node's path as modules are named in torch, its operator last.

    Example: ``/net/net.0/net.0.1/Gemm`` (the exporter repeats a Sequential's path) ->
    ``("net", "0", "1", "Gemm")``.
    """
    path: list[str] = []
    for part in node.strip("/").split("/"):
        pieces = part.split(".")
        repeated = next(
            (n for n in range(len(pieces) - 1, 0, -1) if path[-n:] == pieces[:n]),
            0,
        )
        path += pieces[repeated:]
    return tuple(path)


def find_last_products(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the weighted products that make the logits, nothing weighted after them.

    Products with a vector or a stack of matrices are among them: INT8 is for matrices.

    Example: ``logits = Gemm(Relu(MatMul(x, a)), b)`` -> the Gemm alone. Empty where the logits
    come from another kind of layer, such as a convolution: those stay float anyway.
    """
    weights = float_weights(graph).keys()
    makers = {name: node for node in graph.node for name in node.output}
    matrices = [node.name for node in matrix_products(graph)]
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
        if node.op_type not in _LAYER_OPS or not weights & set(node.input):
            waiting += node.input
        elif node.op_type in ("MatMul", "Gemm") and node.name not in found:
            found.append(node.name)
    return found


def _is_below(node: str, wanted: tuple[str, ...]) -> bool:
    # Quantisation writes /head/Gemm as /head/Gemm_MatMul; people know the name in model.onnx.
    known = (node, node.removesuffix("_MatMul"))
    return any(path[: len(wanted)] == wanted for name in known for path in _spellings(name))


def _spellings(node: str) -> Iterator[tuple[str, ...]]:
    yield module_path(node)
    yield tuple(re.split(r"[./]", node.strip("/")))


def _suggest(module: str, nodes: Sequence[str] | dict[str, set[str]]) -> str:
    paths = [module_path(name)[:-1] for name in nodes]
    known = {".".join(path[:end]): None for path in paths for end in range(1, len(path) + 1)}
    asked = module.replace("/", ".")
    near = difflib.get_close_matches(asked, known, n=_NUM_NEAR_NAMES, cutoff=0.5)
    if not near:
        near = [name for name in known if "." not in name][:_NUM_NEAR_NAMES]
    if not near:
        return "Its weights stand in no module; name a node of model.onnx."
    return f"The nearest names are {', '.join(near)}."
