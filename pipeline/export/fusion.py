"""Fuses attention, GELU and LayerNorm into ONNX Runtime's own operators, counted by layer."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx

from pipeline.contract.errors import ExportError
from pipeline.export.external_data import DEFAULT_EXTERNAL_DATA_MB, save_model

_PER_LAYER = {"Attention": 1, "Gelu": 1, "SkipLayerNormalization": 2}
"""Fused operators of one layer; GELU's variants under ``Gelu``."""
_KINDS = {
    "Attention": "Attention",
    "BiasGelu": "Gelu",
    "FastGelu": "Gelu",
    "Gelu": "Gelu",
    "SkipLayerNormalization": "SkipLayerNormalization",
}
# The first number in a module path: /encoder/layer.3/attention/self/Softmax.
_LAYER = re.compile(r"\.(\d+)/")
_PLUMBING = {
    "Add",
    "Cast",
    "Concat",
    "Constant",
    "Gather",
    "Identity",
    "MatMul",
    "Mul",
    "Reshape",
    "Shape",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}
"""Operators that any layer has, fused or not: no sign of what broke the pattern."""


def fuse_graph(
    source: Path,
    target: Path,
    *,
    num_layers: int,
    num_heads: int,
    hidden_size: int,
    external_data_mb: int = DEFAULT_EXTERNAL_DATA_MB,
) -> dict[str, int]:
    """Write the fused graph of a model file and return its fused operators' counts.

    The result runs in ONNX Runtime only: its operators are of the ``com.microsoft`` domain.

    Raises:
        ExportError: a layer was not fused whole; it names the layer and the operator. Nothing
            is written then.
    """
    # Imported late: the package adds its folder to sys.path when it is imported.
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    options = FusionOptions("bert")
    # The default keeps only each row's token count: right for padding at the end alone.
    options.use_raw_attention_mask(True)
    fused = optimize_model(
        str(source),
        model_type="bert",
        num_heads=num_heads,
        hidden_size=hidden_size,
        optimization_options=options,
        opt_level=0,
    )
    counts = demand_fusions(fused.model.graph, num_layers=num_layers, place=source.name)
    save_optimizer_model(fused, target, external_data_mb=external_data_mb)
    return counts


def save_optimizer_model(optimized: Any, path: Path, *, external_data_mb: int) -> None:
    """Write the model of an ``onnxruntime.transformers`` ``OnnxModel``, as its own save would."""
    optimized.topological_sort()
    model = optimized.model
    if "com.microsoft" not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    save_model(model, path, external_data_mb=external_data_mb)


def demand_fusions(graph: onnx.GraphProto, *, num_layers: int, place: str) -> dict[str, int]:
    """Return the fused operators of all layers by kind, every layer being fused whole.

    Whole is: one Attention, one Gelu, two SkipLayerNormalization.

    Raises:
        ExportError: naming each layer that falls short, each operator with both counts, and
            what is left of the layer that the optimizer did not know.
    """
    fused = count_fused_operators(graph)
    reports: dict[str, list[int]] = defaultdict(list)
    for layer in range(num_layers):
        if shortfall := _name_shortfall(fused.get(layer, Counter())):
            reports[shortfall].append(layer)
    if reports:
        found = "; ".join(
            f"{_name_layers(layers)}: {shortfall}{_name_leftover(graph, layers)}"
            for shortfall, layers in reports.items()
        )
        raise ExportError(
            f"the fusion is not whole: {found}",
            place=place,
            remedy="Set export.fuse to false, or write the layer as the optimizer expects it.",
        )
    return {kind: sum(counts[kind] for counts in fused.values()) for kind in _PER_LAYER}


def count_fused_operators(graph: onnx.GraphProto) -> dict[int, Counter[str]]:
    """Return layer → kind → number of fused nodes; those outside the layers are left out.

    A fused node has a name of its own, but its output keeps the name that the replaced chain's
    last node gave it, and that is the path of a module:
    ``/encoder/layer.1/intermediate/Mul_1_output_0``.
    """
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for node in graph.node:
        kind, layer = _KINDS.get(node.op_type), _layer_of(node.output)
        if kind is not None and layer is not None:
            counts[layer][kind] += 1
    return dict(counts)


def _layer_of(names: Iterable[str]) -> int | None:
    found = [match for name in names if (match := _LAYER.search(name))]
    return int(found[0].group(1)) if found else None


def _name_shortfall(counts: Counter[str]) -> str:
    short = [
        f"{counts[kind]} of {demanded} {kind}" if counts[kind] else f"no {kind}"
        for kind, demanded in _PER_LAYER.items()
        if counts[kind] < demanded
    ]
    return ", ".join(short)


def _name_leftover(graph: onnx.GraphProto, layers: list[int]) -> str:
    left = [
        node.op_type
        for node in graph.node
        if _layer_of(node.output) in layers
        and node.op_type not in _KINDS
        and node.op_type not in _PLUMBING
    ]
    return f" (unfused there: {', '.join(dict.fromkeys(left))})" if left else ""


def _name_layers(layers: list[int]) -> str:
    return f"{'layer' if len(layers) == 1 else 'layers'} {', '.join(map(str, layers))}"
