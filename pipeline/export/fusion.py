"""Fuses attention, GELU and LayerNorm into ONNX Runtime's own operators, counted by layer."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx

from pipeline.contract.errors import ExportError
from pipeline.export.external_data import DEFAULT_EXTERNAL_DATA_MB, save_model
from pipeline.export.onnx_session import Device
from pipeline.model.architecture import Architecture

_SKIP_NORM, _NORM = "SkipLayerNormalization", "LayerNormalization"
_PER_LAYER: dict[Device, dict[str, int]] = {
    "cpu": {"Attention": 1, "Gelu": 1, _NORM: 2},
    "cuda": {"Attention": 1, "Gelu": 1, _SKIP_NORM: 2},
}
"""Fused operators of one layer; GELU's variants under ``Gelu``. On a CPU the sum before a
LayerNorm stays apart, see :mod:`pipeline.contract.runtime_options`."""
_KINDS = {
    "Attention": "Attention",
    "BiasGelu": "Gelu",
    "FastGelu": "Gelu",
    "Gelu": "Gelu",
    _NORM: _NORM,
    _SKIP_NORM: _SKIP_NORM,
}
# The number of the encoder's layer in a module path: /encoder/layer.3/attention/self/Softmax.
# A head such as verdict.1 has numbers of its own.
_LAYER = re.compile(r"/encoder/layer\.(\d+)/")
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
    architecture: Architecture,
    device: Device = "cpu",
    external_data_mb: int = DEFAULT_EXTERNAL_DATA_MB,
) -> dict[str, int]:
    """Write the graph of a model file, fused for a device; return its fused operators' counts.

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
    options.enable_skip_layer_norm = device == "cuda"
    options.enable_bias_skip_layer_norm = device == "cuda"
    fused = optimize_model(
        str(source),
        model_type="bert",
        num_heads=architecture.num_heads,
        hidden_size=architecture.hidden_size,
        optimization_options=options,
        opt_level=0,
    )
    counts = demand_fusions(
        fused.model.graph,
        num_layers=architecture.num_layers,
        device=device,
        place=source.name,
    )
    save_optimizer_model(fused, target, external_data_mb=external_data_mb)
    return counts


def save_optimizer_model(optimized: Any, path: Path, *, external_data_mb: int) -> None:
    """Write the model of an ``onnxruntime.transformers`` ``OnnxModel``, as its own save would."""
    optimized.topological_sort()
    model = optimized.model
    if "com.microsoft" not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    save_model(model, path, external_data_mb=external_data_mb)


def demand_fusions(
    graph: onnx.GraphProto, *, num_layers: int, device: Device, place: str
) -> dict[str, int]:
    """Return the fused operators of all layers by kind, every layer being fused whole.

    Whole is: one Attention, one Gelu and two LayerNormalization on ``cpu``, two
    SkipLayerNormalization on ``cuda``.

    Raises:
        ExportError: naming each layer that falls short, each operator with both counts, and
            what is left of the layer that the optimizer did not know.
    """
    fused, demanded = count_fused_operators(graph), _PER_LAYER[device]
    reports: dict[str, list[int]] = defaultdict(list)
    for layer in range(num_layers):
        if shortfall := _name_shortfall(fused.get(layer, Counter()), demanded):
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
    return {kind: sum(counts[kind] for counts in fused.values()) for kind in demanded}


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


def _name_shortfall(counts: Counter[str], demanded: Mapping[str, int]) -> str:
    short = [
        f"{counts[kind]} of {number} {kind}" if counts[kind] else f"no {kind}"
        for kind, number in demanded.items()
        if counts[kind] < number
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
