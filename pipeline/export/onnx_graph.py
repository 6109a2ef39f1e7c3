"""Writes a torch model as an ONNX graph with dynamic batch and seq axes."""

import io
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn
from torch.jit._trace import TracerWarning

from pipeline.config import Task
from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.external_data import DEFAULT_EXTERNAL_DATA_MB, load_model, save_model
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
# torch warns that the graph might hold for one shape only (recurrent layers do so even where it
# holds for all); the comparison with torch over many shapes that follows is the answer.
_KNOWN_DOUBTS: tuple[tuple[str, type[Warning]], ...] = (
    (r"", TracerWarning),
    (r"Exporting a model to ONNX with a batch_size other than 1", UserWarning),
)


def export_graph(
    model: nn.Module,
    path: Path,
    *,
    opset: int,
    task: Task,
    num_labels: int,
    external_data_mb: int = DEFAULT_EXTERNAL_DATA_MB,
) -> None:
    """Write a model in eval mode as an ONNX file and check what the file declares.

    Args:
        model: ``forward(input_ids, attention_mask) -> logits``.
        path: file to write.
        opset: version of the ONNX operators.
        task: decides the axes of logits.
        num_labels: last axis of logits.
        external_data_mb: weights over this many megabytes stand in ``<path>.data``.

    Raises:
        OSError: the disk is full.
        ExportError: torch cannot write the model, or opset or axes of the written file are
            not the declared ones.
    """
    axes = {
        name: {index: axis for index, axis in enumerate(axes) if isinstance(axis, str)}
        for name, axes in declared_axes(task, num_labels).items()
    }
    # Of a model over 2 GB torch writes one file for each tensor.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".torch-") as folder:
        written = Path(folder) / path.name
        with warnings.catch_warnings():
            for message in _KNOWN_DEPRECATIONS:
                warnings.filterwarnings("ignore", message=message, category=DeprecationWarning)
            for message, category in _KNOWN_DOUBTS:
                warnings.filterwarnings("ignore", message=message, category=category)
            _write_graph(model, written, opset=opset, axes=axes)
        graph = load_model(written)
    _declare_unused_inputs(graph)
    save_model(graph, path, external_data_mb=external_data_mb)
    check_graph(path, opset=opset, task=task, num_labels=num_labels)


def _write_graph(
    model: nn.Module, path: Path, *, opset: int, axes: dict[str, dict[int, str]]
) -> None:
    input_ids = torch.zeros(_EXAMPLE_SHAPE, dtype=torch.int64)
    try:
        # A graph that cannot be written is printed whole; the error says which part it was.
        with torch.no_grad(), redirect_stdout(io.StringIO()):
            torch.onnx.export(
                model,
                (input_ids, torch.ones_like(input_ids)),
                str(path),
                input_names=list(INPUT_NAMES),
                output_names=[OUTPUT_NAME],
                dynamic_axes=axes,
                opset_version=opset,
                dynamo=False,
            )
    except OSError:  # Of the disk, not of the model.
        raise
    except Exception as error:  # The exporter's and the model's own types share no other base.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(
            f"torch cannot write this model as ONNX: {reason[0]}",
            place=path.name,
            remedy="Write the named part of the model with operators that ONNX has at this "
            "export.opset, or raise it.",
        ) from error


def _declare_unused_inputs(model: onnx.ModelProto) -> None:
    # The exporter leaves out an input that decides nothing, such as the mask of a model that
    # tells padding by its id; whoever runs a graph gives it both.
    there = {value.name for value in model.graph.input}
    for name in INPUT_NAMES:
        if name not in there:
            kind = onnx.TensorProto.INT64
            value = onnx.helper.make_tensor_value_info(name, kind, ["batch", "seq"])
            model.graph.input.append(value)


def as_logits_function(model: nn.Module) -> LogitsFunction:
    """Return a torch model in eval mode as a function over numpy arrays."""

    def run(input_ids: IntArray, attention_mask: IntArray) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits = model(torch.from_numpy(input_ids), torch.from_numpy(attention_mask))
        return np.asarray(logits.float().cpu().numpy(), dtype=np.float32)

    return run
