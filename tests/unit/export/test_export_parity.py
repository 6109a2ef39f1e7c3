from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from export_samples import MAX_SEQ_LEN, SEP, build_architecture, build_classifier
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.onnx_graph import as_logits_function, export_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.parity import ParityCell, build_parity_cells, check_parity, grid_seq_lens


@pytest.fixture(scope="module")
def cells() -> list[ParityCell]:
    run = as_logits_function(build_classifier(build_architecture()))
    return build_parity_cells(run, seq_lens=[1, 3, 8, MAX_SEQ_LEN], vocab_size=44, seed=0)


def test_grid_holds_one_three_the_edges_and_the_longest() -> None:
    assert grid_seq_lens([16, 64], 128) == [1, 3, 16, 64, 128]
    assert grid_seq_lens([3], 3) == [1, 3]


def test_every_row_of_the_grid_has_its_first_token(cells: list[ParityCell]) -> None:
    shapes = {cell.input_ids.shape for cell in cells}

    assert shapes == {(batch, seq) for batch in (1, 2, 32) for seq in (1, 3, 8, MAX_SEQ_LEN)}
    assert all(cell.attention_mask[:, 0].all() for cell in cells)
    assert any((cell.attention_mask == 0).any() for cell in cells)


def test_the_exported_graph_answers_as_torch(plain_graph: Path, cells: list[ParityCell]) -> None:
    parity = check_parity(open_model(plain_graph), cells, atol=1e-4, name="m")

    assert parity.max_abs_difference < 1e-5
    assert parity.num_cells == len(cells)


def test_a_corrupted_weight_is_an_error_that_names_the_worst_cell(
    plain_graph: Path, cells: list[ParityCell], tmp_path: Path
) -> None:
    model = onnx.load(plain_graph)
    bias = next(item for item in model.graph.initializer if item.name == "classifier.bias")
    values = onnx.numpy_helper.to_array(bias) + np.float32(0.01)
    bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))
    onnx.save(model, tmp_path / "corrupted.onnx")

    with pytest.raises(ExportError, match=r"model\.onnx: .* atol 0\.0001, most at batch \d+, seq"):
        check_parity(open_model(tmp_path / "corrupted.onnx"), cells, atol=1e-4, name="model.onnx")


@pytest.mark.slow
def test_the_grid_of_a_model_of_pairs_has_both_token_types(tmp_path: Path) -> None:
    pairs = build_classifier(build_architecture(sep_token_id=SEP))
    grid = {"seq_lens": [1, 3, MAX_SEQ_LEN], "vocab_size": 44, "seed": 0, "sep_token_id": SEP}
    cells = build_parity_cells(as_logits_function(pairs), **grid)
    export_graph(pairs, tmp_path / "pairs.onnx", opset=14, task=Task.SEQUENCE, num_labels=3)
    single = build_classifier(build_architecture())

    parity = check_parity(open_model(tmp_path / "pairs.onnx"), cells, atol=1e-4, name="pairs")

    assert parity.max_abs_difference < 1e-5
    assert all((cell.input_ids == SEP).any(axis=1).all() for cell in cells)
    with pytest.raises(ExportError, match="differ from torch's"):
        check_parity(as_logits_function(single), cells, atol=1e-4, name="single")


def _wrong_at(
    shape: tuple[int, int], cells: list[ParityCell], *, by: float
) -> Callable[[IntArray, IntArray], NDArray[np.float32]]:
    answers = {cell.input_ids.shape: cell.logits for cell in cells}

    def run(input_ids: IntArray, _mask: IntArray) -> NDArray[np.float32]:
        error = by if input_ids.shape == shape else 1e-6
        return answers[input_ids.shape] + np.float32(error)

    return run


def test_the_worst_cell_is_returned_with_its_difference(cells: list[ParityCell]) -> None:
    parity = check_parity(_wrong_at((2, 8), cells, by=1e-3), cells, atol=1e-2, name="m")

    assert parity.as_figures() == {
        "max_abs_difference": pytest.approx(1e-3, rel=1e-3),
        "atol": 1e-2,
        "worst": {"batch": 2, "seq": 8},
        "cells": 12,
    }


def test_the_error_names_the_worst_cell_and_its_difference(cells: list[ParityCell]) -> None:
    with pytest.raises(
        ExportError, match=r"most at batch 32, seq 24 \(got 0\.25\)\. Raise export\.atol only"
    ):
        check_parity(_wrong_at((32, 24), cells, by=0.25), cells, atol=1e-2, name="m")


def test_an_empty_grid_is_refused() -> None:
    with pytest.raises(ExportError, match="m: there is nothing to compare with"):
        check_parity(_wrong_at((1, 1), [], by=0.0), [], atol=1e-2, name="m")


def test_nan_is_not_taken_for_a_match(cells: list[ParityCell]) -> None:
    def run(input_ids: IntArray, _mask: IntArray) -> NDArray[np.float32]:
        return np.full((len(input_ids), 3), np.nan, dtype=np.float32)

    with pytest.raises(ExportError, match="m: its logits are not finite at batch"):
        check_parity(run, cells, atol=1e-4, name="m")


def test_logits_of_another_shape_are_an_error(cells: list[ParityCell]) -> None:
    def run(input_ids: IntArray, _mask: IntArray) -> NDArray[np.float32]:
        return np.zeros((len(input_ids), 1), dtype=np.float32)

    with pytest.raises(ExportError, match="must have the shape"):
        check_parity(run, cells, atol=1e-4, name="m")
