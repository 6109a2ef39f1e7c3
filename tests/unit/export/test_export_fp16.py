from pathlib import Path

import numpy as np
import onnx
import pytest
from export_samples import LABELS, MAX_SEQ_LEN, build_architecture, build_classifier
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.fp16 import FP16_TOLERANCE, check_fp16_parity, write_fp16
from pipeline.export.fusion import fuse_graph
from pipeline.export.graph_checks import check_graph
from pipeline.export.onnx_graph import as_logits_function, export_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.parity import ParityCell, build_parity_cells


@pytest.fixture(scope="module")
def cells() -> list[ParityCell]:
    run = as_logits_function(build_classifier(build_architecture()))
    return build_parity_cells(run, seq_lens=[1, 3, MAX_SEQ_LEN], vocab_size=44, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("is_fused", [False, True])
def test_the_fp16_model_answers_as_torch_within_its_tolerance(
    plain_graph: Path, tmp_path: Path, cells: list[ParityCell], is_fused: bool
) -> None:
    source = plain_graph
    if is_fused:
        source = tmp_path / "fused.onnx"
        fuse_graph(plain_graph, source, architecture=build_architecture(), device="cuda")
    target = tmp_path / "model_fp16.onnx"

    write_fp16(source, target)

    check_graph(target, opset=14, task=Task.SEQUENCE, num_labels=len(LABELS))
    parity = check_fp16_parity(open_model(target), cells, name=target.name)
    assert 0 < parity.max_abs_difference < 5e-3
    types = {tensor.data_type for tensor in onnx.load(target).graph.initializer}
    assert onnx.TensorProto.FLOAT16 in types
    assert onnx.TensorProto.FLOAT not in types


@pytest.mark.slow
@pytest.mark.parametrize(("task", "pooling"), [(Task.TOKEN, "cls"), (Task.MULTI_LABEL, "mean")])
def test_other_heads_are_converted_too(tmp_path: Path, task: Task, pooling: str) -> None:
    model = build_classifier(build_architecture(task, pooling=pooling, sep_token_id=3))
    export_graph(model, tmp_path / "plain.onnx", opset=14, task=task, num_labels=len(LABELS))
    cells = build_parity_cells(
        as_logits_function(model), seq_lens=[3, 9], vocab_size=44, seed=0, sep_token_id=3
    )

    write_fp16(tmp_path / "plain.onnx", tmp_path / "fp16.onnx")

    check_graph(tmp_path / "fp16.onnx", opset=14, task=task, num_labels=len(LABELS))
    check_fp16_parity(open_model(tmp_path / "fp16.onnx"), cells, name="fp16.onnx")


def _off_by(share: float, cells: list[ParityCell]):  # type: ignore[no-untyped-def]
    answers = {cell.input_ids.shape: cell.logits for cell in cells}
    largest = max(float(np.abs(logits).max()) for logits in answers.values())

    def run(input_ids: IntArray, _mask: IntArray) -> NDArray[np.float32]:
        return answers[input_ids.shape] + np.float32(share * max(1.0, largest))

    return run


def test_the_tolerance_grows_with_the_largest_logit(cells: list[ParityCell]) -> None:
    large = [
        ParityCell(
            input_ids=cell.input_ids,
            attention_mask=cell.attention_mask,
            logits=cell.logits * np.float32(100),
        )
        for cell in cells
    ]

    parity = check_fp16_parity(_off_by(0.9 * FP16_TOLERANCE, large), large, name="fp16")

    assert parity.max_abs_difference > FP16_TOLERANCE
    assert parity.max_abs_difference < parity.atol


def test_an_fp16_model_over_its_tolerance_is_refused_and_no_setting_is_named(
    cells: list[ParityCell],
) -> None:
    with pytest.raises(ExportError, match=r"fp16: its logits differ .* seq \d+ \(got 0\.\d+\)$"):
        check_fp16_parity(_off_by(1.1 * FP16_TOLERANCE, cells), cells, name="fp16")


def test_no_cells_are_refused() -> None:
    with pytest.raises(ExportError, match="nothing to compare with"):
        check_fp16_parity(lambda ids, mask: np.zeros(1), [], name="fp16")  # type: ignore[arg-type,return-value]
