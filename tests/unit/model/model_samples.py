"""Tiny architectures and Hugging Face folders."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from pipeline.model.architecture import Architecture
from pipeline.model.classifier import TextClassifier
from pipeline.model.weights import build_new_model

SEQUENCE = "sequence_classification"
TOKEN = "token_classification"
MULTI_LABEL = "multi_label_classification"


def build_architecture(**changes: Any) -> Architecture:
    values: dict[str, Any] = {
        "vocab_size": 30,
        "hidden_size": 12,
        "num_layers": 2,
        "num_heads": 3,
        "intermediate_size": 20,
        "max_position_embeddings": 16,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "dropout": 0.1,
        "pooling": "cls",
        "num_labels": 3,
        "task": SEQUENCE,
        "pad_token_id": 0,
    }
    return Architecture(**{**values, **changes})


def build_rough_model(**changes: Any) -> TextClassifier:
    """Return a model whose weights are all far from 0, so that no term can hide."""
    model = TextClassifier(build_architecture(**changes)).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return model


def write_hf_folder(
    folder: Path,
    *,
    prefix: str = "",
    tensors: dict[str, torch.Tensor | None] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write a BERT folder; ``tensors`` and ``config`` add to it, None takes away."""
    architecture = build_architecture()
    model, _ = build_new_model(architecture, seed=9, pretrained=None)
    state: dict[str, torch.Tensor | None] = {
        f"{prefix}{name}": value
        for name, value in model.state_dict().items()
        if not name.startswith("classifier.")
    }
    state |= tensors or {}
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in state.items() if value is not None}
    save_file(kept, folder / "model.safetensors")
    values = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "vocab_size": architecture.vocab_size,
        "hidden_size": architecture.hidden_size,
        "num_hidden_layers": architecture.num_layers,
        "num_attention_heads": architecture.num_heads,
        "intermediate_size": architecture.intermediate_size,
        "max_position_embeddings": architecture.max_position_embeddings,
        "type_vocab_size": architecture.type_vocab_size,
        **(config or {}),
    }
    kept_values = {key: value for key, value in values.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept_values), encoding="utf-8")
    return folder
