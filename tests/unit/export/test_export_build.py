"""The model files of a bundle, from a trained model to what the folder holds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from export_samples import LABELS, MAX_SEQ_LEN, write_job_folders

from pipeline.config import ExportSettings, Task
from pipeline.contract.errors import ConfigError, ExportError
from pipeline.export import build
from pipeline.export.build import BuiltModels, build_models
from pipeline.export.fusion_choice import FUSED, UNFUSED, FusionChoice
from pipeline.export.graph_checks import check_graph
from pipeline.export.onnx_session import CUDA_PROVIDER, open_model
from pipeline.export.parity import check_parity
from pipeline.model.trained import TrainedModel, load_trained

ROWS = [np.arange(2, 2 + length, dtype=np.int32) for length in (3, 7, 12)]
COUNTS = {"Attention": 2, "Gelu": 2, "LayerNormalization": 4}
_HAS_CUDA = CUDA_PROVIDER in onnxruntime.get_available_providers()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return load_trained(write_job_folders(tmp_path_factory.mktemp("job")).checkpoint_dir)


def _build(folder: Path, trained: TrainedModel, **settings: Any) -> BuiltModels:
    return build_models(
        folder,
        trained,
        settings=ExportSettings(**settings),
        seq_lens=[1, 3, MAX_SEQ_LEN],
        rows=ROWS,
        seed=0,
    )


def _file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _stub_choice(monkeypatch: pytest.MonkeyPatch, *, kept: str) -> list[Sequence[tuple[int, int]]]:
    """Let a graph win by a wide margin without timing it; return the shapes asked for."""
    asked: list[Sequence[tuple[int, int]]] = []

    def choose(
        runs: Mapping[str, object], shapes: Sequence[tuple[int, int]], *, counts: Any, **_rest: Any
    ) -> FusionChoice:
        assert list(runs) == [FUSED, UNFUSED]
        asked.append(shapes)
        latency_ms = {name: {"1x16": 1.0 if name == kept else 2.0} for name in runs}
        return FusionChoice(counts=counts, latency_ms=latency_ms)

    monkeypatch.setattr(build, "choose_fusion", choose)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize("kept", [FUSED, UNFUSED])
def test_the_faster_graph_becomes_the_model_and_the_other_is_deleted(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    asked = _stub_choice(monkeypatch, kept=kept)

    built = _build(tmp_path, trained, int8=False)

    assert _file_names(tmp_path) == ["model.onnx"]
    assert (b"BiasGelu" in (tmp_path / "model.onnx").read_bytes()) == (kept == FUSED)
    assert built.names == ("model.onnx",)
    assert built.fusion is not None
    assert (built.fusion["kept"], built.fusion["counts"]) == (kept, COUNTS)
    assert asked == [[(1, 16), (1, MAX_SEQ_LEN), (32, 16), (32, MAX_SEQ_LEN)]]


@pytest.mark.slow
def test_the_choice_is_measured_and_stated(trained: TrainedModel, tmp_path: Path) -> None:
    built = _build(tmp_path, trained, int8=False)

    assert built.fusion is not None
    assert built.fusion["kept"] in (FUSED, UNFUSED)
    assert set(built.fusion["latency_ms"]) == {FUSED, UNFUSED}
    assert "graph is kept: fused takes" in built.fusion["sentence"]


@pytest.mark.slow
def test_the_grid_and_its_worst_cell_are_returned(trained: TrainedModel, tmp_path: Path) -> None:
    built = _build(tmp_path, trained, int8=False, fuse=False)

    assert built.fusion is None
    assert (built.int8, built.notes) == (None, ())
    assert built.parity["cells"] == len(built.cells) == 9
    assert built.parity["max_abs_difference"] < built.parity["atol"] == 1e-4
    assert "fp16" not in built.parity
    parity = check_parity(open_model(tmp_path / "model.onnx"), built.cells, atol=1e-4, name="m")
    assert parity.as_figures() == built.parity


@pytest.mark.slow
def test_a_model_by_import_path_is_checked_but_not_fused(
    trained: TrainedModel, tmp_path: Path
) -> None:
    architecture = replace(trained.architecture, factory="own.module:build")

    built = _build(tmp_path, replace(trained, architecture=architecture), int8=False)

    assert built.fusion is None
    assert built.parity["cells"] == 9
    assert any(note.startswith("not fused:") for note in built.notes)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [FUSED, UNFUSED])
def test_weights_over_the_limit_stand_beside_the_model_that_is_kept(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    _stub_choice(monkeypatch, kept=kept)
    monkeypatch.setattr("pipeline.export.external_data._BYTES_PER_MB", 1000)

    _build(tmp_path, trained, int8=False, external_data_mb=1)

    assert _file_names(tmp_path) == ["model.onnx", "model.onnx.data"]
    check_graph(tmp_path / "model.onnx", opset=14, task=Task.SEQUENCE, num_labels=len(LABELS))


@pytest.mark.slow
def test_int8_of_a_model_with_a_data_file_has_one_of_its_own(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.export.external_data._BYTES_PER_MB", 1000)

    built = _build(tmp_path, trained, fuse=False, external_data_mb=1)

    assert built.names == ("model.onnx", "model_int8.onnx")
    assert built.int8 is not None
    assert _file_names(tmp_path) == sorted(
        [*built.names, *(f"{name}.data" for name in built.names)]
    )
    open_model(tmp_path / "model_int8.onnx")


@pytest.mark.slow
def test_a_model_over_the_tolerance_is_refused_by_name(
    trained: TrainedModel, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=r"model\.onnx: its logits differ from torch's"):
        _build(tmp_path, trained, int8=False, atol=1e-12)


@pytest.mark.skipif(_HAS_CUDA, reason="ONNX Runtime has CUDA")
def test_a_target_that_is_not_there_is_refused_before_anything_is_written(
    trained: TrainedModel, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"export\.target: .* or set export\.target to cpu"):
        _build(tmp_path, trained, target="cuda")

    assert _file_names(tmp_path) == []


@pytest.mark.slow
def test_the_target_cuda_adds_an_fp16_model_with_a_tolerance_of_its_own(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Everything but the device: the CPU stands in for it.
    monkeypatch.setattr(build, "demand_device", lambda device: None)
    devices: list[str] = []

    def open_on_cpu(path: Path, *, device: str) -> Any:
        devices.append(device)
        return open_model(path)

    monkeypatch.setattr(build, "open_model", open_on_cpu)

    built = _build(tmp_path, trained, target="cuda", int8=False, fuse=False)

    assert built.names == ("model.onnx", "model_fp16.onnx")
    assert _file_names(tmp_path) == ["model.onnx", "model_fp16.onnx"]
    assert set(devices) == {"cuda"}
    fp16 = built.parity["fp16"]
    assert built.parity["max_abs_difference"] < fp16["max_abs_difference"] < fp16["atol"]


@pytest.mark.gpu
@pytest.mark.skipif(not _HAS_CUDA, reason="ONNX Runtime has no CUDA")
@pytest.mark.parametrize("fuse", [False, True])
def test_on_a_gpu_every_model_answers_as_torch(
    trained: TrainedModel, tmp_path: Path, fuse: bool
) -> None:
    built = _build(tmp_path, trained, target="cuda", fuse=fuse)

    assert built.names == ("model.onnx", "model_fp16.onnx", "model_int8.onnx")
    for figures in (built.parity, built.parity["fp16"]):
        assert figures["max_abs_difference"] <= figures["atol"]
