from pathlib import Path

import onnxruntime
import pytest

from pipeline.contract.errors import ConfigError, ExportError
from pipeline.export.onnx_session import CUDA_PROVIDER, demand_device, open_model

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
