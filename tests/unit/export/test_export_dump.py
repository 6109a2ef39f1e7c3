"""The graphs as ONNX Runtime optimises them: where they may go and what is left of a failure."""

import errno
from pathlib import Path

import numpy as np
import pytest
from export_samples import write_job_folders

from pipeline.config import JobConfig
from pipeline.contract.errors import ExportError, FolderError
from pipeline.export import optimized_dump
from pipeline.export.external_data import data_path, load_model, save_model
from pipeline.export.onnx_session import open_model
from pipeline.export.optimized_dump import dump_optimized
from pipeline.export.run import export
from pipeline.export.verify import verify


def test_the_dump_is_the_graph_as_onnx_runtime_optimises_it(
    plain_graph: Path, tmp_path: Path
) -> None:
    before = load_model(plain_graph)

    path = dump_optimized(plain_graph, tmp_path / "a" / "b", device="cpu")

    assert path == tmp_path / "a" / "b" / "model.optimized.onnx"
    nodes = load_model(path).graph.node
    assert len(nodes) < len(before.graph.node)
    assert any(node.op_type in ("BiasGelu", "LayerNormalization") for node in nodes)
    assert load_model(plain_graph) == before


def test_what_runs_on_a_cpu_has_no_skip_layer_normalization(
    plain_graph: Path, tmp_path: Path
) -> None:
    path = dump_optimized(plain_graph, tmp_path, device="cpu")

    kinds = [node.op_type for node in load_model(path).graph.node]
    assert "SkipLayerNormalization" not in kinds
    assert kinds.count("LayerNormalization") == 5


def test_a_second_dump_replaces_the_first(plain_graph: Path, tmp_path: Path) -> None:
    first = dump_optimized(plain_graph, tmp_path, device="cpu").read_bytes()

    assert dump_optimized(plain_graph, tmp_path, device="cpu").read_bytes() == first


def test_the_dump_of_a_model_with_a_data_file_stands_on_its_own(
    plain_graph: Path, tmp_path: Path
) -> None:
    source = tmp_path / "bundle" / "model.onnx"
    source.parent.mkdir()
    save_model(load_model(plain_graph), source, external_data_mb=0)
    assert data_path(source).exists()

    for _ in range(2):
        path = dump_optimized(source, tmp_path / "dump", device="cpu")
    data_path(source).unlink()

    assert data_path(path).exists()
    open_model(path)


def test_a_dump_onto_a_file_is_refused(plain_graph: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            FolderError,
            match=r"written to: (Not a dir|File exists)",
        ):
            dump_optimized(plain_graph, target, device="cpu")

    assert (tmp_path / "file").read_text() == "mine"


def test_a_dump_into_the_models_own_folder_is_refused(plain_graph: Path) -> None:
    for target in (plain_graph.parent, plain_graph.parent / "below"):
        with pytest.raises(FolderError, match="may not be written into"):
            dump_optimized(plain_graph, target, device="cpu")

    assert not (plain_graph.parent / "below").exists()


def test_the_dump_answers_as_the_model_does(plain_graph: Path, tmp_path: Path) -> None:
    inputs = np.arange(8, dtype=np.int64).reshape(2, 4), np.ones((2, 4), dtype=np.int64)

    path = dump_optimized(plain_graph, tmp_path, device="cpu")

    np.testing.assert_array_equal(open_model(path)(*inputs), open_model(plain_graph)(*inputs))


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ExportError("half of it is written")])
def test_a_dump_that_fails_leaves_the_earlier_one_and_nothing_else(
    plain_graph: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
) -> None:
    before = dump_optimized(plain_graph, tmp_path, device="cpu").read_bytes()

    def fail(*_: object, options: object, **__: object) -> None:
        Path(options.optimized_model_filepath).write_bytes(before[:100])
        raise failure

    monkeypatch.setattr(optimized_dump, "open_session", fail)
    with pytest.raises(type(failure)):
        dump_optimized(plain_graph, tmp_path, device="cpu")

    assert [path.name for path in tmp_path.iterdir()] == ["model.optimized.onnx"]
    assert (tmp_path / "model.optimized.onnx").read_bytes() == before


def test_what_a_kill_left_of_a_dump_is_removed_by_the_next(
    plain_graph: Path, tmp_path: Path
) -> None:
    (tmp_path / ".dump-killed").mkdir()
    (tmp_path / ".dump-killed" / "model.optimized.onnx").write_bytes(b"half")

    dump_optimized(plain_graph, tmp_path, device="cpu")

    assert [path.name for path in tmp_path.iterdir()] == ["model.optimized.onnx"]


def test_a_folder_in_place_of_the_dump_is_named(plain_graph: Path, tmp_path: Path) -> None:
    (tmp_path / "model.optimized.onnx").mkdir()

    with pytest.raises(FolderError, match=f"{tmp_path}: .*[Dd]irectory"):
        dump_optimized(plain_graph, tmp_path, device="cpu")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    job = write_job_folders(tmp_path_factory.mktemp("job"))
    settings = job.export.model_copy(update={"fuse": False, "int8": False})
    job = job.model_copy(update={"export": settings})
    export(job)
    return job


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["shards_dir", "checkpoint_dir", "report_dir", "bundle_dir"])
def test_a_folder_with_a_manifest_takes_no_dump(job: JobConfig, folder: str) -> None:
    for target in (getattr(job, folder), getattr(job, folder) / "reference" / "new"):
        with pytest.raises(FolderError, match="whose files are all counted"):
            export(job, dump_optimized=target)

    assert verify(job.bundle_dir)


def test_a_target_that_cannot_be_is_refused_before_the_export(tmp_path: Path) -> None:
    job = write_job_folders(tmp_path / "job")
    (tmp_path / "file").write_text("mine")

    with pytest.raises(FolderError, match="cannot be made or written to"):
        export(job, dump_optimized=tmp_path / "file")

    assert not job.bundle_dir.exists()


@pytest.mark.slow
def test_a_disk_without_room_is_named(
    job: JobConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(optimized_dump.os, "replace", fail)

    with pytest.raises(FolderError, match="No space left on device"):
        export(job, dump_optimized=tmp_path)


def test_the_dump_of_a_model_that_the_bundle_no_longer_has_goes(
    job: JobConfig, tmp_path: Path
) -> None:
    stale = tmp_path / "model_int8" / "model.optimized.onnx"
    stale.parent.mkdir()
    stale.write_bytes(b"of another bundle")

    export(job, dump_optimized=tmp_path)

    assert (tmp_path / "model" / "model.optimized.onnx").exists()
    assert not stale.exists()
