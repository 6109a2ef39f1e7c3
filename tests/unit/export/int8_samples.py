"""Tiny models that INT8 must cope with."""

from pathlib import Path

import torch
from export_samples import build_architecture
from torch import nn

from pipeline.config import Task
from pipeline.export.onnx_graph import export_graph
from pipeline.model.classifier import TextClassifier

OUTLIER = "encoder.layer.0.attention.output.dense"
"""Linear whose weights :func:`spoil` makes hard to round."""


class TwoLayerHead(TextClassifier):
    """The usual encoder under a head of another name with two linears."""

    def __init__(self) -> None:
        architecture = build_architecture()
        super().__init__(architecture)
        width = architecture.hidden_size
        del self.classifier
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embeddings(input_ids), attention_mask)
        return self.head(self.pooler(hidden))


class Mixed(nn.Module):
    """Products over tokens and over texts, a weight used twice in each, and twelve layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(44, 8, padding_idx=0)
        self.shared = nn.Linear(8, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))
        self.net = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 8))
        self.text = nn.Linear(8, 8)
        self.score = nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = attention_mask.unsqueeze(2).to(torch.float32)
        # Padding and masked words are rows of zeros.
        hidden = self.embedding(input_ids) * mask
        hidden = self.shared(torch.tanh(self.shared(hidden)))
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        text = (self.net(hidden) * mask).sum(1)
        return self.score(torch.tanh(self.text(torch.tanh(self.text(text)))))


class BareTokens(nn.Module):
    """Labels tokens straight from the embeddings; padding is zeros all the way."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(44, 8, padding_idx=0)
        self.inner = nn.Linear(8, 8, bias=False)
        self.score = nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.score(self.inner(self.embedding(input_ids)))


def spoil(model: nn.Module) -> None:
    """Multiply one input channel of a linear by 100 and divide what comes in by it by 100.

    The float model answers as before (values are summed, not bent, on their way), but beside such
    weights all others of a column round to nothing. Values ten times larger make it matter.
    """
    attention = model.encoder.layer[0].attention
    with torch.no_grad():
        attention.self.value.weight *= 10
        attention.self.value.weight[0] /= 100
        attention.self.value.bias[0] /= 100
        attention.output.dense.weight[:, 0] *= 100


def write_graph(model: nn.Module, path: Path, *, task: Task = Task.SEQUENCE) -> Path:
    export_graph(model.eval(), path, opset=14, task=task, num_labels=3)
    return path
