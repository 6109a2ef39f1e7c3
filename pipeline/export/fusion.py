"""Fuses attention, GELU and LayerNorm into ONNX Runtime's own operators, and counts them."""

from collections import Counter
from pathlib import Path

import onnx

from pipeline.contract.errors import ExportError

_GELU_OPS = ("BiasGelu", "Gelu", "FastGelu")


def fuse_graph(
    source: Path, target: Path, *, num_layers: int, num_heads: int, hidden_size: int
) -> dict[str, int]:
    """Write the fused graph of a model file and return its fused operators' counts.

    The result runs in ONNX Runtime only: its operators are of the ``com.microsoft`` domain.

    Raises:
        ExportError: fewer operators were fused than the layers have; it names which.
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
    fused.save_model_to_file(str(target))
    counts = count_fused_operators(onnx.load(str(target)).graph)
    demand_fusions(counts, num_layers=num_layers, place=source.name)
    return counts


def count_fused_operators(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the number of fused nodes of each kind, GELU's variants under ``Gelu``."""
    found = Counter(node.op_type for node in graph.node)
    return {
        "Attention": found["Attention"],
        "Gelu": sum(found[name] for name in _GELU_OPS),
        "SkipLayerNormalization": found["SkipLayerNormalization"],
    }


def demand_fusions(counts: dict[str, int], *, num_layers: int, place: str) -> None:
    """Check that every layer was fused: one Attention, one Gelu, two SkipLayerNormalization.

    Raises:
        ExportError: naming each operator that falls short, with both counts.
    """
    demanded = {
        "Attention": num_layers,
        "Gelu": num_layers,
        "SkipLayerNormalization": 2 * num_layers,
    }
    short = [
        f"{counts.get(name, 0)} of {number} {name}"
        for name, number in demanded.items()
        if counts.get(name, 0) < number
    ]
    if short:
        raise ExportError(
            f"the fusion found only {', '.join(short)}",
            place=place,
            remedy="Set export.fuse to false, or write the layer as the optimizer expects it.",
        )
