import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from export_samples import write_job_folders
from int8_samples import OUTLIER, spoil
from rich.console import Console

from pipeline.config import JobConfig, Task
from pipeline.contract.errors import ExportError, FolderError
from pipeline.contract.folder import hash_files, read_manifest, sha256_file, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, load_shards, write_shard
from pipeline.export.onnx_graph import as_logits_function
from pipeline.export.row_logits import run_rows
from pipeline.export.sensitivity import explore_sensitivity
from pipeline.model.trained import load_trained


def _explore(job: JobConfig):
    return explore_sensitivity(job, console=Console(file=io.StringIO()))


def _set(job: JobConfig, **changes: object) -> JobConfig:
    return job.model_copy(update={"export": job.export.model_copy(update=changes)})


def _spoil_checkpoint(job: JobConfig) -> None:
    trained = load_trained(job.checkpoint_dir)
    spoil(trained.model)
    torch.save({"model": trained.model.state_dict()}, trained.checkpoint_file)
    manifest = read_manifest(job.checkpoint_dir)
    manifest["checkpoints"][0]["sha256"] = sha256_file(trained.checkpoint_file)
    write_manifest(job.checkpoint_dir, manifest)


def _label_as_the_model_does(job: JobConfig) -> None:
    """Make the float model right on every validation row."""
    shards, trained = load_shards(job.shards_dir), load_trained(job.checkpoint_dir)
    split = shards.split("validation")
    rows = [split.input_ids(index) for index in range(len(split))]
    logits = run_rows(as_logits_function(trained.model), rows, pad_token_id=0)
    path = job.shards_dir / shards.manifest["splits"]["validation"]["files"][0]
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    labels = pa.array([[int(row.argmax())] for row in logits], pa.list_(pa.int32()))
    place = SHARD_SCHEMA.get_field_index("labels")
    write_shard(path, table.set_column(place, SHARD_SCHEMA.field(place), labels))
    manifest = read_manifest(job.shards_dir)
    (job.shards_dir / "manifest.json").unlink()
    write_manifest(job.shards_dir, {**manifest, "files": hash_files(job.shards_dir)})


@pytest.fixture(scope="module")
def spoiled_job(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    """A job whose INT8 model errs because of one linear; read it, do not change it."""
    job = write_job_folders(tmp_path_factory.mktemp("spoiled"))
    _spoil_checkpoint(job)
    _label_as_the_model_does(job)
    return job


@pytest.mark.slow
def test_the_linear_with_the_outlier_is_first_and_alone_is_kept_float(
    spoiled_job: JobConfig,
) -> None:
    report = _explore(_set(spoiled_job, max_accuracy_drop=0.08))

    assert report.effects[0].name == OUTLIER
    assert report.effects[0].mean_error > 10 * report.effects[1].mean_error
    assert report.effects[0].label_flips > 0
    assert report.effects[0].accuracy_change < 0
    assert report.keep_float == (OUTLIER,)
    assert f'--set "export.keep_float=[{OUTLIER}]"' in report.as_text()
    assert "1 of 12 linears" in report.sentence
    assert sorted(path.name for path in Path(spoiled_job.output_dir).iterdir()) == [
        "checkpoint",
        "shards",
    ]


@pytest.mark.slow
def test_it_says_so_where_no_list_passes(spoiled_job: JobConfig) -> None:
    report = _explore(_set(spoiled_job, max_accuracy_drop=-1.0))

    assert report.keep_float is None
    assert report.sentence.startswith("No list passes the gate")
    assert report.as_figures()["keep_float"] is None


@pytest.mark.slow
@pytest.mark.parametrize("task", [Task.TOKEN, Task.MULTI_LABEL])
def test_it_says_so_where_nothing_needs_excluding(tmp_path: Path, task: Task) -> None:
    job = _set(write_job_folders(tmp_path, task), max_accuracy_drop=0.9, int8_activations="row")

    report = _explore(job)

    assert report.keep_float == ()
    assert "Nothing needs to be kept float" in report.as_text()
    assert "export.int8_activations=row" in report.as_text()
    figures = json.loads(json.dumps(report.as_figures()))
    assert len(figures["linears"]) == 12
    assert figures["rows"] == 40
    errors = [item["mean_error"] for item in figures["linears"]]
    assert errors == sorted(errors, reverse=True)
    assert all(np.isfinite(errors))
    assert figures["together"]["mean_error"] > errors[-1]


def test_shards_of_another_training_are_refused(tmp_path: Path) -> None:
    job = write_job_folders(tmp_path)
    write_manifest(job.shards_dir, {**read_manifest(job.shards_dir), "fingerprint": "shards-2"})

    with pytest.raises(FolderError, match=r"other shards than these \(got 'shards-2'\)"):
        _explore(job)


def test_a_failure_leaves_no_files(tmp_path: Path) -> None:
    job = _set(write_job_folders(tmp_path), opset=1)

    with pytest.raises(ExportError, match="torch cannot write"):
        _explore(job)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "shards"]
