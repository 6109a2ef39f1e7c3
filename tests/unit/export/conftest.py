from pathlib import Path

import pytest
from export_samples import LABELS, build_architecture, build_classifier

from pipeline.config import Task
from pipeline.export.onnx_graph import export_graph


@pytest.fixture(scope="session")
def plain_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unfused graph of the tiny sequence classifier; read it, do not change it."""
    path = tmp_path_factory.mktemp("plain") / "plain.onnx"
    model = build_classifier(build_architecture())
    export_graph(model, path, opset=14, task=Task.SEQUENCE, num_labels=len(LABELS))
    return path
