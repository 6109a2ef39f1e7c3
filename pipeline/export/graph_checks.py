"""Checks what a written graph declares: opset, names, types and axes of inputs and logits."""

from pathlib import Path

import onnx

from pipeline.config import Task
from pipeline.contract.errors import ExportError
from pipeline.export.external_data import data_path, external_locations, load_graph
from pipeline.export.onnx_session import INPUT_NAMES, OUTPUT_NAME

Axes = tuple[str | int, ...]


def declared_axes(task: Task, num_labels: int) -> dict[str, Axes]:
    """Return the axes of every input and output; a name is dynamic, a number fixed.

    Example: sequence task, 2 labels -> ``logits: ("batch", 2)``.
    """
    rows: Axes = ("batch", "seq") if task is Task.TOKEN else ("batch",)
    return {**dict.fromkeys(INPUT_NAMES, ("batch", "seq")), OUTPUT_NAME: (*rows, num_labels)}


def read_axes(graph: onnx.GraphProto) -> dict[str, Axes]:
    """Return the axes that a graph's inputs and outputs have; an unnamed one is ``"?"``."""
    return {
        value.name: tuple(
            axis.dim_param or (axis.dim_value if axis.HasField("dim_value") else "?")
            for axis in value.type.tensor_type.shape.dim
        )
        for value in (*graph.input, *graph.output)
    }


def read_opset(model: onnx.ModelProto) -> int:
    """Return the version of the standard operators that a model uses, 0 if none."""
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return max(versions, default=0)


def check_graph(path: Path, *, opset: int, task: Task, num_labels: int) -> None:
    """Check opset, names, element types and axes of a model file, and where its weights are.

    Raises:
        ExportError: naming the input or output that is not as declared, or a file of weights
            that is missing or not the one beside the model.
    """
    model = load_graph(path)
    _check_locations(model, path)
    if read_opset(model) != opset:
        raise ExportError(
            f"the opset must be {opset}",
            place=path.name,
            value=read_opset(model),
            remedy="Set export.opset to one that the exporter can write.",
        )
    declared, written = declared_axes(task, num_labels), read_axes(model.graph)
    if written.keys() != declared.keys():
        raise ExportError(
            f"the graph's inputs and outputs must be {', '.join(declared)}",
            place=path.name,
            value=sorted(written),
        )
    for name, axes in declared.items():
        if written[name] != axes:
            raise ExportError(
                f"the axes must be {axes}", place=f"{path.name}: {name}", value=written[name]
            )
    for value in (*model.graph.input, *model.graph.output):
        is_input = value.name in INPUT_NAMES
        expected = onnx.TensorProto.INT64 if is_input else onnx.TensorProto.FLOAT
        if value.type.tensor_type.elem_type != expected:
            raise ExportError(
                f"the element type must be {onnx.TensorProto.DataType.Name(expected)}",
                place=f"{path.name}: {value.name}",
                value=onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type),
            )


def _check_locations(model: onnx.ModelProto, path: Path) -> None:
    demanded, locations = data_path(path), external_locations(model)
    if locations - {demanded.name}:
        raise ExportError(
            f"weights outside the model may stand in {demanded.name} only",
            place=path.name,
            value=sorted(locations),
        )
    if locations and not demanded.is_file():
        raise ExportError(f"the file of the weights, {demanded.name}, is missing", place=path.name)
