"""Writes a torch model as an ONNX graph with dynamic batch and seq axes."""

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pipeline.config import Task
from pipeline.contract.batching import IntArray
from pipeline.export.graph_checks import check_graph, declared_axes
from pipeline.export.onnx_session import INPUT_NAMES, OUTPUT_NAME, LogitsFunction

# Two rows of three tokens: the smallest text that any max_seq_len allows, and no axis of 1.
_EXAMPLE_SHAPE = (2, 3)
# The TorchScript exporter announces its retirement, but the graph of its successor
# (dynamo, opset 18) could not be fused: no Attention node was found in it.
_KNOWN_DEPRECATIONS = (
    r"You are using the legacy TorchScript-based ONNX export",
    r"The feature will be removed",
)


def export_graph(model: nn.Module, path: Path, *, opset: int, task: Task, num_labels: int) -> None:
    """Write a model in eval mode as an ONNX file and check what the file declares.

    Args:
        model: ``forward(input_ids, attention_mask) -> logits``.
        path: file to write.
        opset: version of the ONNX operators.
        task: decides the axes of logits.
        num_labels: last axis of logits.

    Raises:
        ExportError: opset or axes of the written file are not the declared ones.
    """
    input_ids = torch.zeros(_EXAMPLE_SHAPE, dtype=torch.int64)
    with warnings.catch_warnings(), torch.no_grad():
        for message in _KNOWN_DEPRECATIONS:
            warnings.filterwarnings("ignore", message=message, category=DeprecationWarning)
        torch.onnx.export(
            model,
            (input_ids, torch.ones_like(input_ids)),
            str(path),
            input_names=list(INPUT_NAMES),
            output_names=[OUTPUT_NAME],
            dynamic_axes={
                name: {index: axis for index, axis in enumerate(axes) if isinstance(axis, str)}
                for name, axes in declared_axes(task, num_labels).items()
            },
            opset_version=opset,
            dynamo=False,
        )
    check_graph(path, opset=opset, task=task, num_labels=num_labels)


def as_logits_function(model: nn.Module) -> LogitsFunction:
    """Return a torch model in eval mode as a function over numpy arrays."""

    def run(input_ids: IntArray, attention_mask: IntArray) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits = model(torch.from_numpy(input_ids), torch.from_numpy(attention_mask))
        return np.asarray(logits.float().cpu().numpy(), dtype=np.float32)

    return run
