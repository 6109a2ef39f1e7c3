from pathlib import Path

import onnxruntime
import pytest

from pipeline.contract.errors import ConfigError, ExportError, FolderError
from pipeline.export.external_data import data_path, load_model, save_model
from pipeline.export.onnx_session import CUDA_PROVIDER, demand_device, open_model
from pipeline.export.optimized_dump import dump_optimized

needs_no_cuda = pytest.mark.skipif(
    CUDA_PROVIDER in onnxruntime.get_available_providers(), reason="ONNX Runtime has CUDA"
)


def test_the_cpu_is_always_there() -> None:
    demand_device("cpu")


@needs_no_cuda
def test_cuda_without_its_provider_is_refused_with_a_remedy(plain_graph: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"export\.target: .* no CUDAExecutionProvider.*Install onnxruntime-gpu"
    ):
        open_model(plain_graph, device="cuda")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"not a model")

    with pytest.raises(ExportError, match=r"m\.onnx: ONNX Runtime cannot load the model"):
        open_model(tmp_path / "m.onnx")


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
        with pytest.raises(FolderError, match="cannot be made"):
            dump_optimized(plain_graph, target, device="cpu")

    assert (tmp_path / "file").read_text() == "mine"


def test_a_dump_into_the_models_own_folder_is_refused(plain_graph: Path) -> None:
    with pytest.raises(FolderError, match="own folder"):
        dump_optimized(plain_graph, plain_graph.parent, device="cpu")
