"""Model files whose weights stand beside them."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from export_samples import LABELS, MAX_SEQ_LEN, build_architecture, build_classifier

from pipeline.config import Task
from pipeline.contract.errors import ExportError
from pipeline.export.external_data import (
    data_path,
    external_locations,
    load_graph,
    load_model,
    model_size_bytes,
    remove_model,
    rename_model,
    save_model,
    settle_weights,
)
from pipeline.export.fp16 import check_fp16_parity, write_fp16
from pipeline.export.fusion import fuse_graph
from pipeline.export.graph_checks import check_graph
from pipeline.export.onnx_graph import as_logits_function, export_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.parity import ParityCell, build_parity_cells, check_parity

VOCAB_SIZE, WIDTH = 8000, 64
"""2 MB of word embeddings: over the limit of 1 MB in FP32 and, just, in FP16."""


@pytest.fixture(scope="module")
def large_model() -> object:
    return build_classifier(build_architecture(vocab_size=VOCAB_SIZE, hidden_size=WIDTH))


@pytest.fixture(scope="module")
def large_graph(large_model: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph whose weights are over 1 MB, in a folder of its own; read it, do not change it."""
    path = tmp_path_factory.mktemp("large") / "model.onnx"
    export_graph(
        large_model,  # type: ignore[arg-type]
        path,
        opset=14,
        task=Task.SEQUENCE,
        num_labels=len(LABELS),
        external_data_mb=1,
    )
    return path


@pytest.fixture(scope="module")
def cells(large_model: object) -> list[ParityCell]:
    run = as_logits_function(large_model)  # type: ignore[arg-type]
    return build_parity_cells(run, seq_lens=[1, 3, MAX_SEQ_LEN], vocab_size=VOCAB_SIZE, seed=0)


@pytest.fixture
def copied_graph(large_graph: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(large_graph.parent, tmp_path / "copied")) / "model.onnx"


def _file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_weights_over_the_limit_stand_in_one_file_and_none_in_the_graph(large_graph: Path) -> None:
    assert _file_names(large_graph.parent) == ["model.onnx", "model.onnx.data"]
    assert large_graph.stat().st_size < 100_000
    assert data_path(large_graph).stat().st_size > VOCAB_SIZE * WIDTH * 4
    weights = [
        tensor
        for tensor in load_graph(large_graph).graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) > 1
    ]
    assert len(weights) > 30
    assert not any(tensor.HasField("raw_data") for tensor in weights)


def test_weights_under_the_limit_stay_in_the_model_file(plain_graph: Path, tmp_path: Path) -> None:
    data_path(tmp_path / "m.onnx").write_bytes(b"of an earlier model")

    save_model(load_model(plain_graph), tmp_path / "m.onnx", external_data_mb=1)

    assert _file_names(tmp_path) == ["m.onnx"]
    assert load_model(tmp_path / "m.onnx") == load_model(plain_graph)


def test_a_moved_folder_still_answers_as_torch_and_names_no_absolute_path(
    copied_graph: Path, cells: list[ParityCell]
) -> None:
    moved = copied_graph.parent.rename(copied_graph.parent.with_name("moved")) / "model.onnx"

    assert external_locations(load_graph(moved)) == {"model.onnx.data"}
    assert check_parity(open_model(moved), cells, atol=1e-4, name="m").max_abs_difference < 1e-5


def test_a_renamed_model_takes_its_data_file_along(
    copied_graph: Path, cells: list[ParityCell]
) -> None:
    target = copied_graph.with_name("kept.onnx")
    data_path(target).write_bytes(b"of an earlier model")

    rename_model(copied_graph, target)

    assert _file_names(target.parent) == ["kept.onnx", "kept.onnx.data"]
    check_parity(open_model(target), cells, atol=1e-4, name="kept.onnx")


def test_a_small_model_is_renamed_byte_for_byte(plain_graph: Path, tmp_path: Path) -> None:
    shutil.copyfile(plain_graph, tmp_path / "a.onnx")

    rename_model(tmp_path / "a.onnx", tmp_path / "b.onnx")

    assert _file_names(tmp_path) == ["b.onnx"]
    assert (tmp_path / "b.onnx").read_bytes() == plain_graph.read_bytes()


def test_a_removed_model_leaves_no_data_file(copied_graph: Path) -> None:
    remove_model(copied_graph)

    assert _file_names(copied_graph.parent) == []


def test_many_files_of_weights_become_one(
    copied_graph: Path, tmp_path: Path, cells: list[ParityCell]
) -> None:
    (tmp_path / "many").mkdir()
    many = tmp_path / "many" / "model.onnx"
    onnx.save_model(
        load_model(copied_graph), many, save_as_external_data=True, all_tensors_to_one_file=False
    )
    assert len(_file_names(many.parent)) > 10

    save_model(load_model(many), tmp_path / "one.onnx", external_data_mb=1)

    assert _file_names(tmp_path) == ["copied", "many", "one.onnx", "one.onnx.data"]
    check_parity(open_model(tmp_path / "one.onnx"), cells, atol=1e-4, name="one.onnx")


@pytest.mark.slow
def test_the_fused_graph_of_such_a_model_has_its_own_data_file(
    large_graph: Path, tmp_path: Path, cells: list[ParityCell]
) -> None:
    target = tmp_path / "fused.onnx"

    fuse_graph(
        large_graph, target, architecture=build_architecture(hidden_size=WIDTH), external_data_mb=1
    )

    assert _file_names(tmp_path) == ["fused.onnx", "fused.onnx.data"]
    assert target.stat().st_size < 100_000
    check_parity(open_model(target), cells, atol=1e-4, name="fused.onnx")


def test_the_fp16_model_of_such_a_model_has_its_own_data_file_of_half_the_size(
    large_graph: Path, tmp_path: Path, cells: list[ParityCell]
) -> None:
    target = tmp_path / "model_fp16.onnx"

    write_fp16(large_graph, target, external_data_mb=1)

    assert _file_names(tmp_path) == ["model_fp16.onnx", "model_fp16.onnx.data"]
    assert model_size_bytes(target) < 0.55 * model_size_bytes(large_graph)
    check_fp16_parity(open_model(target), cells, name="model_fp16.onnx")


def test_a_written_model_is_settled_only_if_its_weights_are_over_the_limit(
    copied_graph: Path, cells: list[ParityCell]
) -> None:
    single = copied_graph.with_name("single.onnx")
    save_model(load_model(copied_graph), single)
    before = single.read_bytes()

    settle_weights(single, external_data_mb=1900)
    assert single.read_bytes() == before
    settle_weights(single, external_data_mb=1)

    assert data_path(single).exists()
    check_parity(open_model(single), cells, atol=1e-4, name="single.onnx")


def test_weights_that_are_lists_of_numbers_go_to_the_file_too(tmp_path: Path) -> None:
    values = np.arange(400_000, dtype=np.float32)
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, values.shape, values)
    output = onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, values.shape)
    graph = onnx.helper.make_graph([], "g", [], [output], [weight])
    path = tmp_path / "m.onnx"

    save_model(onnx.helper.make_model(graph), path, external_data_mb=1)

    assert path.stat().st_size < 1000
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(load_model(path).graph.initializer[0]), values
    )


@pytest.mark.slow
def test_the_declarations_are_checked_without_reading_the_weights(copied_graph: Path) -> None:
    data_path(copied_graph).write_bytes(b"")

    check_graph(copied_graph, opset=14, task=Task.SEQUENCE, num_labels=len(LABELS))


def test_a_lost_data_file_is_refused_by_name(copied_graph: Path) -> None:
    data_path(copied_graph).unlink()

    with pytest.raises(ExportError, match=r"model\.onnx: .* model\.onnx\.data, is missing"):
        check_graph(copied_graph, opset=14, task=Task.SEQUENCE, num_labels=len(LABELS))
    with pytest.raises(ExportError, match=r"model\.onnx: the file cannot be read"):
        load_model(copied_graph)


@pytest.mark.parametrize("location", ["/etc/hostname", "../other.data", "stray.data"])
def test_weights_in_any_other_file_are_refused(copied_graph: Path, location: str) -> None:
    model = load_graph(copied_graph)
    tensor = next(item for item in model.graph.initializer if item.external_data)
    next(entry for entry in tensor.external_data if entry.key == "location").value = location
    copied_graph.write_bytes(model.SerializeToString())

    with pytest.raises(ExportError, match=r"may stand in model\.onnx\.data only"):
        check_graph(copied_graph, opset=14, task=Task.SEQUENCE, num_labels=len(LABELS))


@pytest.mark.parametrize("content", [b"not a model", b"\xff" * 64])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)

    with pytest.raises(ExportError, match=r"m\.onnx: the file cannot be read as an ONNX model"):
        load_model(tmp_path / "m.onnx")
