import subprocess
import sys
import warnings
from pathlib import Path

import onnx
import pytest
from export_samples import LABELS, build_architecture, build_classifier

from pipeline.config import Task
from pipeline.contract.errors import ExportError
from pipeline.export.graph_checks import check_graph, read_axes
from pipeline.export.onnx_graph import export_graph


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "logits_axes"),
    [(Task.SEQUENCE, ("batch", 3)), (Task.TOKEN, ("batch", "seq", 3))],
)
def test_the_written_graph_has_dynamic_batch_and_seq(
    tmp_path: Path, task: Task, logits_axes: tuple[str | int, ...]
) -> None:
    model = build_classifier(build_architecture(task))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_graph(model, tmp_path / "m.onnx", opset=14, task=task, num_labels=len(LABELS))

    assert read_axes(onnx.load(tmp_path / "m.onnx").graph) == {
        "input_ids": ("batch", "seq"),
        "attention_mask": ("batch", "seq"),
        "logits": logits_axes,
    }


def test_a_fixed_batch_axis_is_refused_by_name(plain_graph: Path, tmp_path: Path) -> None:
    model = onnx.load(plain_graph)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "fixed.onnx")

    with pytest.raises(ExportError, match=r"fixed\.onnx: attention_mask: the axes must be"):
        check_graph(tmp_path / "fixed.onnx", opset=14, task=Task.SEQUENCE, num_labels=3)


def test_another_number_of_labels_is_refused(plain_graph: Path) -> None:
    with pytest.raises(ExportError, match=r"logits: the axes must be \('batch', 5\)"):
        check_graph(plain_graph, opset=14, task=Task.SEQUENCE, num_labels=5)


def test_another_opset_is_refused(plain_graph: Path) -> None:
    with pytest.raises(ExportError, match=r"the opset must be 15 \(got 14\)"):
        check_graph(plain_graph, opset=15, task=Task.SEQUENCE, num_labels=3)


def test_a_renamed_output_is_refused(plain_graph: Path, tmp_path: Path) -> None:
    model = onnx.load(plain_graph)
    model.graph.output[0].name = "scores"
    onnx.save(model, tmp_path / "renamed.onnx")

    with pytest.raises(ExportError, match="inputs and outputs must be input_ids"):
        check_graph(tmp_path / "renamed.onnx", opset=14, task=Task.SEQUENCE, num_labels=3)


@pytest.mark.slow
def test_verify_does_not_load_torch() -> None:
    code = "import sys, pipeline.export.verify; print('torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
