"""Reads and writes model files whose weights stand in a second file, ``model.onnx.data``.

An ONNX file is one protobuf message, which can hold 2 GB
(https://onnx.ai/onnx/repo-docs/ExternalData.html); larger weights must stand beside it.
"""

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx.external_data_helper import (
    ExternalDataInfo,
    set_external_data,
    uses_external_data,
    write_external_data_tensors,
)

from pipeline.contract.errors import ExportError

DEFAULT_EXTERNAL_DATA_MB = 1900
"""Default of ``export.external_data_mb``: what protobuf can hold, less room for the graph."""
_BYTES_PER_MB = 1_000_000
_DATA_ENDING = ".data"
_INDEX_TYPES = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)


def data_path(path: Path) -> Path:
    """Return the file beside a model file that holds its weights, if they are not within.

    Example: ``bundle/model.onnx`` -> ``bundle/model.onnx.data``.
    """
    return path.with_name(path.name + _DATA_ENDING)


def load_model(path: Path) -> onnx.ModelProto:
    """Return a model with its weights, wherever they stand.

    Raises:
        ExportError: the file is no ONNX model, or its weights are not where it says.
    """
    return _load(path, with_weights=True)


def load_graph(path: Path) -> onnx.ModelProto:
    """Return a model without the weights that stand in a file of their own.

    For reading what a graph declares; such a model cannot be saved as another one.

    Raises:
        ExportError: the file is no ONNX model.
    """
    return _load(path, with_weights=False)


def save_model(
    model: onnx.ModelProto, path: Path, *, external_data_mb: int = DEFAULT_EXTERNAL_DATA_MB
) -> None:
    """Write a model, weights over ``external_data_mb`` megabytes in a file of their own.

    That file is named relative to the model file, so the folder can be moved. Scalars and
    integers that are shapes or indices stay in the graph, where ONNX Runtime's optimisers and
    shape inference look for them. Weights that went to the file are no longer in ``model``:
    load it again to go on with it.

    Raises:
        ExportError: the rest of the model does not fit in an ONNX file.
    """
    weights = [tensor for tensor in _tensors(model.graph) if _is_weight(tensor)]
    # onnx appends to a data file that is there.
    data_path(path).unlink(missing_ok=True)
    if sum(_num_bytes(tensor) for tensor in weights) > external_data_mb * _BYTES_PER_MB:
        for tensor in weights:
            _pack(tensor)
            set_external_data(tensor, data_path(path).name)
        write_external_data_tensors(model, str(path.parent))
    _write_graph(model, path)


def settle_weights(path: Path, *, external_data_mb: int) -> None:
    """Move a written model's weights to a file of their own if they are over the limit.

    Raises:
        ExportError: see :func:`save_model`.
    """
    weights = [tensor for tensor in _tensors(load_graph(path).graph) if _is_weight(tensor)]
    if any(map(uses_external_data, weights)):
        return
    if sum(_num_bytes(tensor) for tensor in weights) > external_data_mb * _BYTES_PER_MB:
        save_model(load_model(path), path, external_data_mb=external_data_mb)


def rename_model(source: Path, target: Path) -> None:
    """Rename a model file and its data file, in one folder; the weights are not read."""
    model = load_graph(source)
    for tensor in _tensors(model.graph):
        if uses_external_data(tensor):
            info = ExternalDataInfo(tensor)
            _point_to(tensor, data_path(target).name, offset=info.offset, length=info.length)
    data_path(target).unlink(missing_ok=True)
    if data_path(source).exists():
        data_path(source).rename(data_path(target))
        _write_graph(model, target)
        source.unlink()
    else:
        source.rename(target)


def remove_model(path: Path) -> None:
    """Delete a model file and its data file."""
    path.unlink()
    data_path(path).unlink(missing_ok=True)


def model_size_bytes(path: Path) -> int:
    """Return the size of a model file, its data file included."""
    data = data_path(path)
    return path.stat().st_size + (data.stat().st_size if data.exists() else 0)


def external_locations(model: onnx.ModelProto) -> set[str]:
    """Return the files, as the graph names them, that its weights stand in."""
    return {
        ExternalDataInfo(tensor).location
        for tensor in _tensors(model.graph)
        if uses_external_data(tensor)
    }


def _load(path: Path, *, with_weights: bool) -> onnx.ModelProto:
    try:
        return onnx.load(str(path), load_external_data=with_weights)
    except Exception as error:  # onnx's checker and protobuf share no base of their own.
        raise ExportError(
            f"the file cannot be read as an ONNX model: {error}", place=path.name
        ) from error


def _write_graph(model: onnx.ModelProto, path: Path) -> None:
    try:
        message = model.SerializeToString()
    except Exception as error:  # protobuf's implementations raise types of their own.
        raise ExportError(
            f"the model does not fit in an ONNX file: {error}",
            place=path.name,
            remedy="Lower export.external_data_mb. Constants that the model's code makes stay in "
            "the graph: make large ones parameters or buffers.",
        ) from error
    path.write_bytes(message)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
            for branch in attribute.graphs:
                yield from _tensors(branch)


def _is_weight(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type not in _INDEX_TYPES and _num_elements(tensor) > 1


def _num_elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def _num_bytes(tensor: onnx.TensorProto) -> int:
    item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return _num_elements(tensor) * int(item)


def _pack(tensor: onnx.TensorProto) -> None:
    # Only raw bytes can go to the file; graph tools also write lists of numbers.
    if not tensor.HasField("raw_data"):
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )


def _point_to(
    tensor: onnx.TensorProto, location: str, *, offset: int | None, length: int | None
) -> None:
    values = {"location": location, "offset": offset, "length": length}
    del tensor.external_data[:]
    for key, value in values.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
