"""What every session of ONNX Runtime is told, so that export measures what serving runs."""

from collections.abc import Sequence

_SKIP_LAYER_NORM_FUSION = "SkipLayerNormFusion"


def disabled_optimizers(device: str) -> Sequence[str]:
    """Return the optimisations that a session on ``cpu`` or ``cuda`` does without.

    ONNX Runtime 1.32's SkipLayerNormalization is slow on a CPU: a third of the time of a fused
    INT8 MiniLM and a fifth of a plain one, of which Add and LayerNormalization take a fifth.
    On CUDA it is one kernel in place of two.
    """
    return [_SKIP_LAYER_NORM_FUSION] if device == "cpu" else []
