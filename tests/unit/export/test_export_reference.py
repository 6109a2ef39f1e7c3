"""The parity grid on disk: ONNX's own layout, bounded, and nothing else is taken for it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from verify_samples import build_cells

from pipeline.contract.errors import FolderError, MissingFileError
from pipeline.contract.folder import hash_files
from pipeline.export.parity import GRID_BATCH_SIZES, ParityCell
from pipeline.export.reference import (
    MAX_REFERENCE_BYTES,
    read_reference,
    trim_cells,
    write_reference,
)

SET = "reference/test_data_set_1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_reference(tmp_path, build_cells())
    return tmp_path


def _grid(seq_lens: range, *, num_token_labels: int | None = None) -> list[ParityCell]:
    cells = []
    for batch in GRID_BATCH_SIZES:
        for seq_len in seq_lens:
            ids = np.zeros((batch, seq_len), dtype=np.int64)
            lines = (batch,) if num_token_labels is None else (batch, seq_len)
            logits = np.zeros((*lines, num_token_labels or 2), dtype=np.float32)
            cells.append(ParityCell(input_ids=ids, attention_mask=ids, logits=logits))
    return cells


def _num_bytes(cells: list[ParityCell]) -> int:
    arrays = [(cell.input_ids, cell.attention_mask, cell.logits) for cell in cells]
    return sum(array.nbytes for cell in arrays for array in cell)


def test_the_grid_comes_back_as_it_was_written(folder: Path) -> None:
    cells = read_reference(folder)

    assert len(cells) == len(build_cells())
    for found, written in zip(cells, build_cells(), strict=True):
        np.testing.assert_array_equal(found.input_ids, written.input_ids)
        np.testing.assert_array_equal(found.attention_mask, written.attention_mask)
        np.testing.assert_array_equal(found.logits, written.logits)
        assert (found.input_ids.dtype, found.logits.dtype) == (np.int64, np.float32)


def test_more_than_ten_inputs_keep_their_order(tmp_path: Path) -> None:
    cells = _grid(range(1, 6))

    write_reference(tmp_path, cells)

    shapes = [cell.input_ids.shape for cell in read_reference(tmp_path)]
    assert shapes == [cell.input_ids.shape for cell in cells]


def test_equal_cells_give_equal_bytes(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    other = tmp_path_factory.mktemp("other")
    write_reference(other, build_cells())

    assert hash_files(other) == hash_files(folder)


def test_other_tools_find_the_tensors_by_file_and_name(folder: Path) -> None:
    tensors = {path.name: onnx.load_tensor(path) for path in sorted((folder / SET).iterdir())}

    assert {file: tensor.name for file, tensor in tensors.items()} == {
        "input_0.pb": "input_ids",
        "input_1.pb": "attention_mask",
        "output_0.pb": "logits",
    }
    assert [list(tensor.dims) for tensor in tensors.values()] == [[2, 8], [2, 8], [2, 2]]


def test_a_whole_grid_of_512_tokens_is_kept() -> None:
    grid = _grid(range(32, 513, 32))

    assert trim_cells(grid) == grid
    assert _num_bytes(grid) < MAX_REFERENCE_BYTES


def test_the_biggest_batches_lose_rows_until_the_grid_fits() -> None:
    grid = _grid(range(32, 513, 32), num_token_labels=13)

    kept = trim_cells(grid)

    assert _num_bytes(kept) <= MAX_REFERENCE_BYTES < _num_bytes(grid)
    assert [cell.input_ids.shape[1] for cell in kept] == [cell.input_ids.shape[1] for cell in grid]
    assert {len(cell.input_ids) for cell in kept} <= {1, 2, 4, 8, 16, 32}
    assert all(len(cell.logits) == len(cell.input_ids) == len(cell.attention_mask) for cell in kept)


def test_inputs_are_left_out_where_two_rows_are_too_many() -> None:
    kept = trim_cells(_grid(range(1, 9), num_token_labels=50), max_bytes=5000)

    assert 0 < _num_bytes(kept) <= 5000
    assert len(trim_cells(kept, max_bytes=1)) == 1


def test_a_bundle_without_the_grid_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"reference: the bundle has no logits of torch"):
        read_reference(tmp_path)

    (tmp_path / "reference").mkdir()
    with pytest.raises(MissingFileError, match=r"test_data_set_0: a folder of the grid is missing"):
        read_reference(tmp_path)


def test_a_gap_between_the_folders_is_named(folder: Path) -> None:
    (folder / SET).rename(folder / "reference/test_data_set_7")

    with pytest.raises(MissingFileError, match="test_data_set_1: a folder of the grid is missing"):
        read_reference(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / SET / "input_1.pb").unlink()

    with pytest.raises(MissingFileError, match=r"test_data_set_1/input_1\.pb: the file is missing"):
        read_reference(folder)


@pytest.mark.parametrize("name", ["reference/notes.txt", f"{SET}/input_2.pb", "reference/test_1"])
def test_a_foreign_file_is_refused_by_name(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")

    with pytest.raises(FolderError, match=f"{name}: not part of the grid that export writes"):
        read_reference(folder)


def _truncated(tensor: TensorProto) -> bytes:
    return tensor.SerializeToString()[:-3]


def _short_of_data(tensor: TensorProto) -> bytes:
    tensor.raw_data = tensor.raw_data[:-4]
    return tensor.SerializeToString()


def _renamed(tensor: TensorProto) -> bytes:
    tensor.name = "scores"
    return tensor.SerializeToString()


def _of_doubles(tensor: TensorProto) -> bytes:
    values = numpy_helper.to_array(tensor).astype(np.float64)
    return numpy_helper.from_array(values, tensor.name).SerializeToString()


def _with_data_elsewhere(tensor: TensorProto) -> bytes:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../secret")
    return tensor.SerializeToString()


def _not_finite(tensor: TensorProto) -> bytes:
    values = numpy_helper.to_array(tensor) * np.float32("nan")
    return numpy_helper.from_array(values, tensor.name).SerializeToString()


def _of_another_batch(tensor: TensorProto) -> bytes:
    values = numpy_helper.to_array(tensor)[:1]
    return numpy_helper.from_array(values, tensor.name).SerializeToString()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_truncated, "cannot be read as an ONNX tensor"),
        (_short_of_data, "data do not fill its shape"),
        (_renamed, r"must hold the FLOAT tensor 'logits' with its data \(got 'scores'\)"),
        (_of_doubles, "must hold the FLOAT tensor 'logits'"),
        (_with_data_elsewhere, "must hold the FLOAT tensor 'logits' with its data"),
        (_not_finite, "the logits are not all finite"),
        (_of_another_batch, "logits must have a line for each"),
    ],
)
def test_damaged_logits_are_refused_by_name(
    folder: Path, change: Callable[[TensorProto], bytes], message: str
) -> None:
    path = folder / SET / "output_0.pb"
    path.write_bytes(change(onnx.load_tensor(path)))

    with pytest.raises(FolderError, match=rf"test_data_set_1/output_0\.pb: .*{message}"):
        read_reference(folder)


def test_a_mask_of_another_shape_is_refused(folder: Path) -> None:
    other = onnx.load_tensor(folder / "reference/test_data_set_2/input_1.pb")
    onnx.save_tensor(other, folder / SET / "input_1.pb")

    with pytest.raises(FolderError, match=r"test_data_set_1: input_ids and attention_mask must be"):
        read_reference(folder)
