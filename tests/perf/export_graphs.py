"""Encoders with random weights and every graph that export makes of them, for measurements."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipeline.config import Task
from pipeline.export.build import modules_outside_encoder
from pipeline.export.fusion import fuse_graph
from pipeline.export.int8_choice import write_int8
from pipeline.export.onnx_graph import export_graph
from pipeline.model.architecture import Architecture
from pipeline.model.classifier import TextClassifier

NUM_LABELS = 2
UNFUSED, FUSED = "ONNX unfused", "ONNX fused"
INT8 = {"INT8 tensor": "tensor", "INT8 row": "row"}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A BERT encoder with random weights: how fast a product is does not depend on them."""

    hidden_size: int
    num_layers: int
    num_heads: int = 12
    vocab_size: int = 30_522
    shapes: tuple[tuple[int, int], ...] = tuple(
        (batch, seq_len) for batch in (1, 32) for seq_len in (16, 64, 256)
    )

    def build(self) -> tuple[TextClassifier, Architecture]:
        architecture = Architecture(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            intermediate_size=4 * self.hidden_size,
            max_position_embeddings=512,
            type_vocab_size=2,
            layer_norm_eps=1e-12,
            dropout=0.1,
            pooling="cls",
            num_labels=NUM_LABELS,
            task=Task.SEQUENCE.value,
            pad_token_id=0,
        )
        torch.manual_seed(0)
        return TextClassifier(architecture).eval(), architecture


SUBJECTS = {
    # A second's look at whether this file still works; its figures mean nothing.
    "tiny": Subject(
        hidden_size=16, num_layers=2, num_heads=2, vocab_size=50, shapes=((1, 16), (2, 64))
    ),
    "MiniLM": Subject(hidden_size=384, num_layers=6),
    "BERT-base": Subject(hidden_size=768, num_layers=12),
}


def write_graphs(subject: Subject, folder: Path) -> tuple[TextClassifier, dict[str, Path]]:
    """Return the torch model and its graphs by name, all made from one export."""
    model, shape = subject.build()
    paths = {UNFUSED: folder / "unfused.onnx", FUSED: folder / "fused.onnx"}
    export_graph(model, paths[UNFUSED], opset=14, task=Task.SEQUENCE, num_labels=NUM_LABELS)
    fuse_graph(
        paths[UNFUSED],
        paths[FUSED],
        architecture=shape,
    )
    rng = np.random.default_rng(0)
    rows = [
        rng.integers(0, shape.vocab_size, size=length, dtype=np.int32) for length in (8, 12, 16, 32)
    ]
    for name, activations in INT8.items():
        paths[name] = folder / f"{activations}.onnx"
        write_int8(
            paths[UNFUSED],
            paths[name],
            keep_float=modules_outside_encoder(model),
            extra_keep_float=(),
            activations=activations,
            rows=rows,
            pad_token_id=shape.pad_token_id,
        )
    return model, paths
