"""NaN and infinity: no bundle is written with them, and what holds them is named."""

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from export_samples import build_architecture, build_classifier, write_job_folders
from rich.console import Console

from pipeline.config import JobConfig
from pipeline.contract.bundle import FP32_NAME, INT8_NAME
from pipeline.contract.errors import ExportError, WeightsError
from pipeline.contract.folder import read_manifest, sha256_file, write_manifest
from pipeline.export.external_data import load_model, save_model
from pipeline.export.finite_weights import check_no_nan
from pipeline.export.int8_choice import Candidate
from pipeline.export.int8_graph import prepare_graph
from pipeline.export.quantize import quantize_tensors
from pipeline.export.run import export
from pipeline.export.sensitivity import explore_sensitivity
from pipeline.export.sensitivity_report import Effect
from pipeline.model.finite import demand_finite_weights, first_not_finite

QUERY = "encoder.layer.0.attention.self.query.weight"
TYPES = "embeddings.token_type_embeddings.weight"
"""Its second row is read for pairs of texts only."""


def _set_weight(job: JobConfig, name: str, value: float, *, place: object = (-1,)) -> None:
    state = build_classifier(build_architecture()).state_dict()
    state[name][place] = value
    path = next(job.checkpoint_dir.glob("*.pt"))
    torch.save({"model": state}, path)
    manifest = read_manifest(job.checkpoint_dir)
    manifest["checkpoints"][0]["sha256"] = sha256_file(path)
    write_manifest(job.checkpoint_dir, manifest)


@pytest.fixture
def job(tmp_path: Path) -> JobConfig:
    return write_job_folders(tmp_path / "job")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [QUERY, TYPES, "classifier.bias"])
def test_a_weight_that_is_not_finite_is_named_and_nothing_is_written(
    job: JobConfig, name: str, value: float
) -> None:
    _set_weight(job, name, value)

    for call in (export, _explore):
        with pytest.raises(WeightsError, match=rf"NaN or infinite: {name} \(\d+ of \d+\)"):
            call(job)

    assert not job.bundle_dir.exists()


@pytest.mark.slow
def test_numbers_that_overflow_in_torch_are_named_by_their_module(job: JobConfig) -> None:
    _set_weight(job, "classifier.weight", 3e38, place=...)

    with pytest.raises(ExportError, match=r"output of classifier: .*train\.base_lr"):
        export(job)
    with pytest.raises(ExportError, match="float model gives logits that are not finite"):
        _explore(job)

    assert sorted(path.name for path in Path(job.output_dir).iterdir()) == ["checkpoint", "shards"]


def _explore(job: JobConfig) -> object:
    return explore_sensitivity(job, console=Console(quiet=True))


def test_infinity_may_stand_in_a_mask_and_nan_may_not() -> None:
    model = build_classifier(build_architecture())
    model.register_buffer("mask", torch.full((2, 2), -math.inf).triu(1))

    demand_finite_weights(model, place="here", remedy="None.")

    model.mask[0, 0] = math.nan
    with pytest.raises(WeightsError, match=r"here: .*mask \(1 of 4\)"):
        demand_finite_weights(model, place="here", remedy="None.")


def test_the_innermost_module_is_named_and_none_where_all_is_finite() -> None:
    model = build_classifier(build_architecture())
    ids = torch.tensor([[2, 5, 3]])
    assert first_not_finite(model, ids, torch.ones_like(ids)) is None

    with torch.no_grad():
        model.encoder.layer[1].output.dense.bias[0] = math.inf

    name = first_not_finite(model, ids, torch.ones_like(ids))
    assert name == "encoder.layer.1.output.dense"


@pytest.mark.slow
@pytest.mark.parametrize("external_data_mb", [0, 100])
def test_nan_is_found_in_a_graph_wherever_its_weights_stand(
    plain_graph: Path, tmp_path: Path, external_data_mb: int
) -> None:
    model = load_model(plain_graph)
    [weight] = [item for item in model.graph.initializer if item.name == TYPES]
    values = onnx.numpy_helper.to_array(weight).copy()
    values[1, 0] = np.nan
    weight.CopyFrom(onnx.numpy_helper.from_array(values, TYPES))
    save_model(model, tmp_path / "m.onnx", external_data_mb=external_data_mb)

    with pytest.raises(ExportError, match=rf"m\.onnx: .*hold NaN \(got \['{TYPES}'\]\)"):
        check_no_nan(tmp_path / "m.onnx")

    check_no_nan(plain_graph)


def test_nan_is_found_in_a_constant_of_a_graph(plain_graph: Path, tmp_path: Path) -> None:
    model = load_model(plain_graph)
    value = onnx.numpy_helper.from_array(np.array(np.nan, dtype=np.float32))
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["spare"], value=value))
    save_model(model, tmp_path / "m.onnx")

    with pytest.raises(ExportError, match=r"hold NaN \(got \['spare'\]\)"):
        check_no_nan(tmp_path / "m.onnx")


def test_a_weight_that_int8_has_no_scale_for_is_an_error_of_ours(
    plain_graph: Path, tmp_path: Path
) -> None:
    model = load_model(plain_graph)
    matrix = next(item for item in model.graph.initializer if item.name.startswith("onnx::MatMul"))
    values = onnx.numpy_helper.to_array(matrix) * np.float32("nan")
    matrix.CopyFrom(onnx.numpy_helper.from_array(values, matrix.name))
    save_model(model, tmp_path / "m.onnx")
    prepared = prepare_graph(tmp_path / "m.onnx", keep_float=["classifier"])

    with pytest.raises(ExportError, match=r"int8\.onnx: ONNX Runtime cannot quantise"):
        quantize_tensors(prepared, tmp_path / "int8.onnx", per_channel=True, reduce_range=True)


def test_figures_of_what_is_not_finite_are_still_json() -> None:
    effect = Effect(name="a", mean_error=math.inf, label_flips=1, accuracy_change=-1.0)
    candidate = Candidate(
        per_channel=True, reduce_range=True, mean_error=math.inf, latency_ms={}, rounds_ms=()
    )

    for figures in (effect.as_figures(), candidate.as_figures()):
        assert json.loads(json.dumps(figures, allow_nan=False))["mean_error"] is None


@pytest.mark.slow
def test_the_model_files_are_named_where_only_some_rows_overflow(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.export import fill

    opened = fill.open_model

    def overflow_on_the_last_batch(path: Path, **options: object):
        run = opened(path, **options)
        if path.name != INT8_NAME:
            return run
        return lambda ids, mask: run(ids, mask) / np.float32(len(ids) not in (8, 20))

    monkeypatch.setattr(fill, "open_model", overflow_on_the_last_batch)

    with np.errstate(divide="ignore"), pytest.raises(ExportError, match=INT8_NAME):
        export(job)

    assert FP32_NAME not in {path.name for path in Path(job.output_dir).rglob("*")}
