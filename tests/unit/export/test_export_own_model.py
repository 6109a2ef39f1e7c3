"""Graphs of models whose modules and inputs nobody knows beforehand."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from pipeline.config import Task
from pipeline.contract.errors import ExportError
from pipeline.export.onnx_graph import as_logits_function, export_graph
from pipeline.export.onnx_session import open_model
from pipeline.export.parity import build_parity_cells, check_parity
from pipeline.export.quantize import quantize_graph
from pipeline.export.weighted_nodes import find_last_products


class Recurrent(nn.Module):
    """A GRU over the words; tells padding by its id and never reads the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(44, 8, padding_idx=0)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.classifier = nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.gru(self.embedding(input_ids))
        is_word = (input_ids != 0).unsqueeze(2)
        return self.classifier(hidden.masked_fill(~is_word, -9.0).amax(1))


class Scored(nn.Module):
    """Weighs words with a vector, mixes them with a stack of matrices, and has two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(44, 8)
        self.score = nn.Parameter(torch.ones(8))
        self.stack = nn.Parameter(torch.ones(2, 8, 8))
        self.hidden = nn.Linear(8, 8)
        self.left, self.right = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        words = self.embedding(input_ids)
        weights = (words @ self.score).masked_fill(attention_mask == 0, -9e3).softmax(1)
        text = (words * weights.unsqueeze(2)).sum(1)
        text = torch.relu(self.hidden((text @ self.stack).sum(0)))
        return self.left(text) + torch.tanh(self.right(text))


class Unwritable(Recurrent):
    """Uses an operator that ONNX lacks."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(super().forward(input_ids, attention_mask))


def _export(model: nn.Module, path: Path) -> Path:
    torch.manual_seed(0)
    export_graph(model.eval(), path, opset=14, task=Task.SEQUENCE, num_labels=3)
    return path


def test_a_recurrent_model_without_mask_keeps_both_inputs_and_its_logits(tmp_path: Path) -> None:
    model = Recurrent()
    path = _export(model, tmp_path / "model.onnx")

    cells = build_parity_cells(as_logits_function(model), seq_lens=[1, 7], vocab_size=44, seed=0)

    parity = check_parity(open_model(path), cells, atol=1e-5, name="model.onnx")
    assert parity.max_abs_difference < 1e-5


def test_a_model_with_one_product_has_no_int8(tmp_path: Path) -> None:
    path = _export(Recurrent(), tmp_path / "model.onnx")

    assert quantize_graph(path, tmp_path / "int8.onnx", keep_float=None) is None

    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx"]


def test_both_heads_and_all_that_is_no_matrix_stay_float(tmp_path: Path) -> None:
    path = _export(Scored(), tmp_path / "model.onnx")

    weights = quantize_graph(path, tmp_path / "int8.onnx", keep_float=None)

    assert weights is not None
    assert weights.int8 == ("/hidden/Gemm_MatMul",)
    assert sorted(weights.kept_float) == [
        "/MatMul",
        "/MatMul_1",
        "/left/Gemm_MatMul",
        "/right/Gemm_MatMul",
    ]
    open_model(tmp_path / "int8.onnx")


def test_the_last_product_of_the_encoder_is_its_classifier(plain_graph: Path) -> None:
    assert find_last_products(onnx.load(plain_graph).graph) == ["/classifier/Gemm"]


def test_a_part_that_onnx_lacks_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ExportError) as caught:
        _export(Unwritable(), tmp_path / "model.onnx")

    message = str(caught.value)
    assert message.startswith("model.onnx: torch cannot write this model as ONNX: ")
    assert "special_bessel_j0" in message
    assert "\n" not in message
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []
