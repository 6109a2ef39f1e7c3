"""The section ``export``: how a checkpoint becomes a bundle and what its INT8 model must hold."""

from typing import Annotated, Literal

from pydantic import Field

from pipeline.config.fields import Count, Lenient, PositiveFloat, Share
from pipeline.contract.settings import Settings

ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,255}$")]


class ExportSettings(Settings):
    """The bundle."""

    target: Literal["cpu", "cuda"] = "cpu"
    """Device that the model files are measured and chosen for; ``cuda`` adds an FP16 model and
    needs onnxruntime-gpu where export runs."""
    opset: Annotated[int, Field(ge=14, le=17)] = 14
    """ONNX opset."""
    atol: PositiveFloat = 1e-4
    """Largest difference between torch's and ONNX's logits."""
    fuse: bool = True
    """Fuse attention, GELU and LayerNorm, a shortfall being an error, and keep the fused graph if
    it is faster on the target. Not done to a model.factory."""
    external_data_mb: Annotated[int, Field(ge=1, le=2000)] = 1900
    """Weights over this many megabytes stand in a file of their own (``model.onnx.data``): an
    ONNX file can hold 2 GB."""
    int8: bool = True
    """Also write an INT8 model, embeddings and classifier kept float; of a model.factory that
    holds no further matrix product there is none."""
    int8_activations: Literal["tensor", "row"] = "tensor"
    """What one scale of the activations is for. ``tensor``: the whole padded batch, fastest, but
    an answer depends a little on its batch mates. ``row``: each token, so that it does not;
    costs some speed."""
    keep_float: Annotated[tuple[ModuleName, ...], Lenient] = ()
    """Further modules or layers whose weights stay float, such as ``encoder.layers.0``; one that
    matches nothing is an error. `textlane export --sensitivity` proposes them."""
    max_accuracy_drop: Share = 0.01
    """INT8 becomes the default only if it is shown (95 %) to lose no more than this on
    validation."""
    max_macro_f1_drop: Share | None = None
    """As max_accuracy_drop, for macro F1; null does not ask."""
    gate_resamples: Annotated[Count, Field(ge=100, le=100_000)] = 2000
    """Bootstrap resamples of the gate's intervals; more steady them, and take longer."""
