"""Checks that no weight or constant of a written graph is NaN."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from pipeline.contract.errors import ExportError
from pipeline.export.external_data import load_model

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


def check_no_nan(path: Path) -> None:
    """Check a model file's weights and constants; infinity is allowed, as masks are made of it.

    Raises:
        ExportError: a tensor holds NaN; it names all such.
    """
    bad = sorted(
        name
        for name, tensor in _named_tensors(load_model(path).graph)
        if tensor.data_type in _FLOATS
        and np.isnan(onnx.numpy_helper.to_array(tensor, base_dir=str(path.parent))).any()
    )
    if bad:
        raise ExportError(
            "tensors of the graph hold NaN",
            place=path.name,
            value=bad,
            remedy="Export a checkpoint whose weights are finite; `textlane train` with a lower "
            "train.base_lr makes one.",
        )


def _named_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield node.output[0], attribute.t
