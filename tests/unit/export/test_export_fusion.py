from pathlib import Path

import pytest
from export_samples import MAX_SEQ_LEN, build_architecture, build_classifier

from pipeline.contract.errors import ExportError
from pipeline.export.fusion import demand_fusions, fuse_graph
from pipeline.export.onnx_graph import as_logits_function
from pipeline.export.onnx_session import open_model
from pipeline.export.parity import build_parity_cells, check_parity


def test_every_layer_is_fused_and_masks_with_holes_still_hold(
    plain_graph: Path, tmp_path: Path
) -> None:
    reference = as_logits_function(build_classifier(build_architecture()))
    cells = build_parity_cells(reference, seq_lens=[3, MAX_SEQ_LEN], vocab_size=44, seed=1)

    counts = fuse_graph(
        plain_graph, tmp_path / "fused.onnx", num_layers=2, num_heads=2, hidden_size=16
    )

    assert counts == {"Attention": 2, "Gelu": 2, "SkipLayerNormalization": 4}
    assert check_parity(open_model(tmp_path / "fused.onnx"), cells, atol=1e-4, name="f") < 1e-5


def test_a_shortfall_names_each_operator_with_both_counts() -> None:
    counts = {"Attention": 5, "Gelu": 6, "SkipLayerNormalization": 11}

    with pytest.raises(
        ExportError, match=r"only 5 of 6 Attention, 11 of 12 SkipLayerNormalization\. Set export"
    ):
        demand_fusions(counts, num_layers=6, place="model.onnx")
