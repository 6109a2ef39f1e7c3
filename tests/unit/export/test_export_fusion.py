from pathlib import Path

import onnx
import pytest
import torch
from export_samples import LABELS, MAX_SEQ_LEN, build_architecture, build_classifier
from torch import Tensor, nn
from torch.nn import functional

from pipeline.config import Task
from pipeline.contract.errors import ExportError
from pipeline.export.fusion import demand_fusions, fuse_graph
from pipeline.export.onnx_graph import as_logits_function, export_graph
from pipeline.export.onnx_session import Device, open_model
from pipeline.export.parity import build_parity_cells, check_parity
from pipeline.model.encoder import Intermediate, SelfAttention


class ReluIntermediate(Intermediate):
    def forward(self, hidden_BSD: Tensor) -> Tensor:
        return functional.relu(self.dense(hidden_BSD))


class MaskFirstAttention(SelfAttention):
    """Multiplies the weights by the mask where the optimizer looks for an addition to scores."""

    def forward(self, hidden_BSD: Tensor, mask_bias_B11S: Tensor) -> Tensor:
        query, key, value = (
            self._split(project(hidden_BSD)) for project in (self.query, self.key, self.value)
        )
        scores = query.matmul(key.transpose(-1, -2)) / self.head_width**0.5
        weights = functional.softmax(scores, dim=-1) * torch.exp(mask_bias_B11S)
        context = (weights / weights.sum(-1, keepdim=True)).matmul(value).permute(0, 2, 1, 3)
        return context.reshape(context.size(0), -1, self.num_heads * self.head_width)


def _fuse(model: nn.Module, folder: Path, *, num_layers: int) -> dict[str, int]:
    plain = folder / "plain.onnx"
    export_graph(model, plain, opset=14, task=Task.SEQUENCE, num_labels=len(LABELS))
    return fuse_graph(
        plain, folder / "fused.onnx", architecture=build_architecture(num_layers=num_layers)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "norm"), [("cpu", "LayerNormalization"), ("cuda", "SkipLayerNormalization")]
)
def test_every_layer_is_fused_for_its_device_and_masks_with_holes_still_hold(
    plain_graph: Path, tmp_path: Path, device: Device, norm: str
) -> None:
    reference = as_logits_function(build_classifier(build_architecture()))
    cells = build_parity_cells(reference, seq_lens=[3, MAX_SEQ_LEN], vocab_size=44, seed=1)
    target = tmp_path / "fused.onnx"

    counts = fuse_graph(plain_graph, target, architecture=build_architecture(), device=device)

    assert counts == {"Attention": 2, "Gelu": 2, norm: 4}
    assert (b"SkipLayerNormalization" in target.read_bytes()) == (device == "cuda")
    parity = check_parity(open_model(target), cells, atol=1e-4, name="f")
    assert parity.max_abs_difference < 1e-5


@pytest.mark.slow
def test_a_layer_with_another_activation_is_named_with_what_is_left_of_it(tmp_path: Path) -> None:
    architecture = build_architecture(num_layers=3)
    model = build_classifier(architecture)
    model.encoder.layer[1].intermediate = ReluIntermediate(architecture).eval()

    with pytest.raises(
        ExportError,
        match=r"plain\.onnx: the fusion is not whole: layer 1: no Gelu \(unfused there: Relu\)\. ",
    ):
        _fuse(model, tmp_path, num_layers=3)

    assert not (tmp_path / "fused.onnx").exists()


@pytest.mark.slow
def test_layers_with_another_order_of_attention_are_named_together(tmp_path: Path) -> None:
    architecture = build_architecture(num_layers=3)
    model = build_classifier(architecture)
    for layer in (0, 2):
        model.encoder.layer[layer].attention.self = MaskFirstAttention(architecture).eval()

    with pytest.raises(ExportError, match=r"whole: layers 0, 2: no Attention \(.*Softmax"):
        _fuse(model, tmp_path, num_layers=3)


def test_a_shortfall_of_one_operator_states_both_counts() -> None:
    names = ["/encoder/layer.0/attention/self/Reshape_3_output_0"]
    kinds = ["Attention"]
    for path, kind in (("intermediate/Mul_1", "BiasGelu"), ("output/LayerNorm/Add_1", _NORM)):
        names.append(f"/encoder/layer.0/{path}_output_0")
        kinds.append(kind)
    # A fused node outside the layers does not make up for one that a layer lacks.
    names, kinds = [*names, "/embeddings/LayerNorm/Add_1_output_0"], [*kinds, _NORM]
    nodes = [
        onnx.helper.make_node(kind, ["x"], [name]) for kind, name in zip(kinds, names, strict=True)
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [])

    with pytest.raises(
        ExportError, match=r"layer 0: 1 of 2 LayerNormalization; layer 1: no Attention, no Gelu"
    ):
        demand_fusions(graph, num_layers=2, device="cpu", place="model.onnx")


_NORM = "LayerNormalization"
