"""The parity grid inside the bundle, so that torch's logits can be compared without torch.

The layout is that of ONNX's own test data (https://github.com/onnx/onnx, docs/OnnxBackendTest.md):
one folder ``reference/test_data_set_N`` for each input, holding ``input_0.pb`` (``input_ids``),
``input_1.pb`` (``attention_mask``) and ``output_0.pb`` (torch's ``logits``), each a TensorProto.
Beside a copy of a model file, these folders are what onnxruntime_perf_test and onnx_test_runner
read.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from pipeline.contract.errors import FolderError, MissingFileError
from pipeline.export.onnx_session import INPUT_NAMES, OUTPUT_NAME
from pipeline.export.parity import ParityCell

REFERENCE_NAME = "reference"
MAX_REFERENCE_BYTES = 3_000_000
"""Chosen: at 512 tokens and 16 bucket edges the whole grid of a text model takes 2.5 MB."""
_FEWEST_ROWS = 2
_TENSORS = {
    "input_0.pb": (INPUT_NAMES[0], TensorProto.INT64),
    "input_1.pb": (INPUT_NAMES[1], TensorProto.INT64),
    "output_0.pb": (OUTPUT_NAME, TensorProto.FLOAT),
}
_SET_NAME = re.compile(r"test_data_set_(0|[1-9][0-9]{0,5})")
_REMEDY = "Export the bundle again; do not edit its files by hand."


def write_reference(folder: Path, cells: Sequence[ParityCell]) -> None:
    """Write the grid below ``folder/reference``, cut by :func:`trim_cells`.

    Equal cells give equal bytes.

    Args:
        folder: the bundle's folder.
        cells: the parity grid with torch's logits.
    """
    for index, cell in enumerate(trim_cells(cells)):
        place = folder / REFERENCE_NAME / f"test_data_set_{index}"
        place.mkdir(parents=True)
        arrays = (cell.input_ids, cell.attention_mask, cell.logits)
        for (file, (name, _)), array in zip(_TENSORS.items(), arrays, strict=True):
            tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
            (place / file).write_bytes(tensor.SerializeToString(deterministic=True))


def trim_cells(
    cells: Sequence[ParityCell], *, max_bytes: int = MAX_REFERENCE_BYTES
) -> list[ParityCell]:
    """Return the cells that fit into a number of bytes, in order.

    The biggest keep only their first rows, half of them at a time and never fewer than two;
    where that is not enough (token logits of many labels), the biggest are left out, the last
    one excepted. A row of torch's logits does not depend on the rows that went.

    Example: of batches of 1, 2 and 32 rows, those of 32 have 16 or fewer.
    """
    kept = list(cells)
    while sum(map(_num_bytes, kept)) > max_bytes:
        halved = [cell for cell in kept if len(cell.input_ids) > _FEWEST_ROWS]
        if not halved and len(kept) == 1:
            break
        biggest = max(halved or kept, key=_num_bytes)
        # By identity: equality of arrays is an array.
        index = next(index for index, cell in enumerate(kept) if cell is biggest)
        if halved:
            kept[index] = _first_rows(biggest, max(_FEWEST_ROWS, len(biggest.input_ids) // 2))
        else:
            del kept[index]
    return kept


def read_reference(folder: Path) -> list[ParityCell]:
    """Return the grid that stands below ``folder/reference``, in the order it was written.

    Raises:
        MissingFileError: there is no grid, or a file of it is not there.
        FolderError: a file or folder is not part of a grid, is damaged, or holds another
            tensor than its name says.
    """
    root = folder / REFERENCE_NAME
    if not root.is_dir():
        raise MissingFileError(
            "the bundle has no logits of torch to compare with", place=str(root), remedy=_REMEDY
        )
    names = {entry.name for entry in root.iterdir()}
    wanted = [f"test_data_set_{index}" for index in range(max(1, len(names)))]
    for name in sorted(names):
        if not (_SET_NAME.fullmatch(name) and (root / name).is_dir()):
            raise _foreign(root / name)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise MissingFileError(
            "a folder of the grid is missing", place=str(root / missing[0]), remedy=_REMEDY
        )
    return [_read_cell(root / name) for name in wanted]


def _num_bytes(cell: ParityCell) -> int:
    return int(cell.input_ids.nbytes + cell.attention_mask.nbytes + cell.logits.nbytes)


def _first_rows(cell: ParityCell, rows: int) -> ParityCell:
    return replace(
        cell,
        input_ids=cell.input_ids[:rows],
        attention_mask=cell.attention_mask[:rows],
        logits=cell.logits[:rows],
    )


def _read_cell(place: Path) -> ParityCell:
    for entry in sorted(place.iterdir()):
        if entry.name not in _TENSORS:
            raise _foreign(entry)
    input_ids, mask, logits = (_read_tensor(place / file) for file in _TENSORS)
    if input_ids.ndim != 2 or 0 in input_ids.shape or mask.shape != input_ids.shape:
        raise FolderError(
            "input_ids and attention_mask must be [batch, seq] alike",
            place=str(place),
            value=(input_ids.shape, mask.shape),
            remedy=_REMEDY,
        )
    if logits.shape[:-1] not in (input_ids.shape, input_ids.shape[:1]):
        raise FolderError(
            f"logits must have a line for each of {input_ids.shape[:1]} or {input_ids.shape}",
            place=str(place / "output_0.pb"),
            value=logits.shape,
            remedy=_REMEDY,
        )
    if not np.isfinite(logits).all():
        raise FolderError(
            "the logits are not all finite", place=str(place / "output_0.pb"), remedy=_REMEDY
        )
    return ParityCell(input_ids=input_ids, attention_mask=mask, logits=logits)


def _read_tensor(path: Path) -> NDArray[Any]:
    name, kind = _TENSORS[path.name]
    if not path.is_file():
        raise MissingFileError("the file is missing", place=str(path), remedy=_REMEDY)
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's own type, and its package has no annotations
        raise FolderError(
            f"cannot be read as an ONNX tensor: {error}", place=str(path), remedy=_REMEDY
        ) from error
    # A tensor may name another file for its data, anywhere on the machine.
    is_whole = not tensor.external_data and tensor.data_location == TensorProto.DEFAULT
    if (tensor.name, tensor.data_type, is_whole) != (name, kind, True):
        raise FolderError(
            f"must hold the {TensorProto.DataType.Name(kind)} tensor {name!r} with its data",
            place=str(path),
            value=tensor.name,
            remedy=_REMEDY,
        )
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise FolderError(
            f"the tensor's data do not fill its shape: {error}",
            place=str(path),
            value=list(tensor.dims),
            remedy=_REMEDY,
        ) from error


def _foreign(path: Path) -> FolderError:
    return FolderError(
        "not part of the grid that export writes",
        place=str(path),
        remedy="Remove it, or export the bundle again.",
    )
