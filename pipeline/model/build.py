"""Architecture to model: the one door for whoever fills in trained weights."""

from torch import nn

from pipeline.model.architecture import Architecture
from pipeline.model.classifier import TextClassifier
from pipeline.model.factory import build_own_model


def build_model(architecture: Architecture) -> nn.Module:
    """Return the encoder, or the model by import path, with weights that mean nothing yet.

    ``forward(input_ids, attention_mask) -> float32 logits``.

    Raises:
        ConfigError: the model by import path cannot be built.
    """
    if architecture.factory is None:
        return TextClassifier(architecture)
    return build_own_model(architecture, seed=0)[0]
