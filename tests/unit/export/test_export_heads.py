"""What makes the logits stays float, whatever it is called and however deep it is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import own_heads
import pytest
import torch
from export_samples import LABELS, MAX_SEQ_LEN, build_architecture, write_job_folders
from torch import nn

from pipeline.config import ExportSettings
from pipeline.contract.bundle import load_bundle
from pipeline.contract.folder import read_manifest, sha256_file, write_manifest
from pipeline.export.build import build_models
from pipeline.export.run import export
from pipeline.export.verify import verify
from pipeline.model.architecture import Architecture
from pipeline.model.build import build_model
from pipeline.model.classifier import TextClassifier
from pipeline.model.trained import load_trained

pytestmark = pytest.mark.slow

WIDTH = 16
ROWS = [np.arange(2, 2 + length, dtype=np.int32) for length in (4, 7, 12)]


class Renamed(TextClassifier):
    """The encoder under a head of another name."""

    def __init__(self, architecture: Architecture, head: nn.Module) -> None:
        super().__init__(architecture)
        del self.classifier
        self.verdict = head

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embeddings(input_ids), attention_mask)
        return self.verdict(self.pooler(hidden))


def _two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, len(LABELS)))


def _node_kinds(path: Path, *, part: str) -> set[int]:
    """Return the element types of all stored matrices that nodes of a part read."""
    graph = onnx.load(path).graph
    matrices = {item.name: item.data_type for item in graph.initializer if len(item.dims) == 2}
    nodes = [node for node in graph.node if f"/{part}/" in node.name]
    return {matrices[name] for node in nodes for name in node.input if name in matrices}


@pytest.mark.parametrize(
    ("head", "num_products", "activations"),
    [(nn.Linear(WIDTH, len(LABELS)), 1, "tensor"), (_two_layers(), 2, "row")],
    ids=["renamed", "renamed, two layers"],
)
def test_every_layer_of_the_encoders_head_stays_float(
    tmp_path: Path, head: nn.Module, num_products: int, activations: str
) -> None:
    job = write_job_folders(tmp_path / "job")
    trained = replace(
        load_trained(job.checkpoint_dir), model=Renamed(build_architecture(), head).eval()
    )

    built = build_models(
        tmp_path,
        trained,
        settings=ExportSettings(int8_activations=activations),
        seq_lens=[3, MAX_SEQ_LEN],
        rows=ROWS,
        seed=0,
    )

    assert built.int8 is not None
    kept = [name for name in built.int8["kept_float"] if "/verdict/" in name]
    assert len(kept) == num_products
    assert not any("/verdict/" in name or "/pooler/" in name for name in built.int8["int8"])
    assert _node_kinds(tmp_path / "model_int8.onnx", part="verdict") == {onnx.TensorProto.FLOAT}
    assert built.fusion is not None
    assert built.fusion["counts"] == {"Attention": 2, "Gelu": 2, "LayerNormalization": 4}


@pytest.mark.parametrize(
    ("keep_float", "in_int8"),
    [
        ((), ["/model/hidden/", "/model/verdict/verdict.0/"]),
        (("model.verdict",), ["/model/hidden/"]),
    ],
)
def test_of_an_own_model_the_layer_of_the_logits_stays_float_and_what_is_asked_for(
    tmp_path: Path, keep_float: tuple[str, ...], in_int8: list[str]
) -> None:
    job = write_job_folders(tmp_path)
    _replace_model(job.checkpoint_dir)
    settings = job.export.model_copy(update={"keep_float": keep_float})

    export(job.model_copy(update={"export": settings}))

    int8 = load_bundle(job.bundle_dir).manifest.quality["int8"]
    assert [name.rpartition("/")[0] + "/" for name in int8["int8"]] == in_int8
    assert any(name.startswith("/model/verdict/verdict.2/") for name in int8["kept_float"])
    assert any("weights are INT8" in line for line in verify(job.bundle_dir))


def _replace_model(folder: Path) -> None:
    none = dict.fromkeys(("hidden_size", "num_layers", "num_heads", "intermediate_size"), 0)
    source = Path(str(own_heads.__file__))
    facts = {"factory": "own_heads:build", "factory_sha256": sha256_file(source)}
    manifest = read_manifest(folder)
    manifest["architecture"].update(none | facts)
    [entry] = manifest["checkpoints"]
    model = build_model(Architecture(**manifest["architecture"]))
    torch.save({"model": model.state_dict()}, folder / entry["file"])
    entry["sha256"] = sha256_file(folder / entry["file"])
    write_manifest(folder, manifest)
