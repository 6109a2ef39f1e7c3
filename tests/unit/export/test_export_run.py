import json
import shutil
from pathlib import Path

import onnx
import pytest
from export_samples import LABELS, MAX_SEQ_LEN, write_job_folders

from pipeline.config import JobConfig, Task
from pipeline.contract.bundle import load_bundle, seal_manifest
from pipeline.contract.errors import AlteredFileError, ExportError, FolderError, MissingFileError
from pipeline.contract.folder import hash_files, read_manifest, write_manifest
from pipeline.contract.shards import load_shards
from pipeline.export.run import export
from pipeline.export.verify import verify

FUSED = {"Attention": 2, "Gelu": 2, "LayerNormalization": 4}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    """A job whose bundle is written; tests that change files copy it first."""
    job = write_job_folders(tmp_path_factory.mktemp("job"))
    result = export(job)
    assert not result.is_reused
    return job


@pytest.fixture
def copied_bundle(job: JobConfig, tmp_path: Path) -> Path:
    return Path(shutil.copytree(job.bundle_dir, tmp_path / "bundle"))


def _rehash(folder: Path) -> None:
    manifest = read_manifest(folder)
    manifest["files"] = hash_files(folder)
    write_manifest(folder, seal_manifest(manifest))


@pytest.mark.slow
def test_the_bundle_holds_models_tokenizer_and_figures(job: JobConfig) -> None:
    manifest = load_bundle(job.bundle_dir).manifest

    models = {"model.onnx", "model_int8.onnx"}
    top = {name for name in manifest.files if not name.startswith("reference/")}
    assert top == models | {"tokenizer.json"}
    assert "reference/test_data_set_0/output_0.pb" in manifest.files
    assert manifest.labels == LABELS
    assert manifest.limits.max_seq_len == MAX_SEQ_LEN
    quality = manifest.quality
    assert (quality["split"], quality["rows"]) == ("test", 20)
    assert set(quality["accuracy"]) == models
    assert quality["fusion"]["counts"] == FUSED
    assert quality["parity"]["max_abs_difference"] < quality["parity"]["atol"]
    assert quality["int8"]["sentence"]
    assert set(quality["size_bytes"]) == set(quality["reference"]) == models
    assert {tuple(times) for times in quality["latency_ms"].values()} == {
        ("1x16", "1x24", "32x16", "32x24")
    }
    assert set(quality["latency_ms"]) == models
    assert manifest.provenance["data_hash"] == "shards-1"
    assert manifest.provenance["checkpoint"]["file"] == "step_10_loss_0.5000.pt"


@pytest.mark.slow
def test_the_manifest_says_what_serving_and_tuning_need(job: JobConfig) -> None:
    manifest = load_bundle(job.bundle_dir).manifest

    assert manifest.target == "cpu"
    assert set(manifest.batch_shift) == {"model.onnx", "model_int8.onnx"}
    assert manifest.batch_shift["model.onnx"].logit < 1e-5
    lengths = load_shards(job.shards_dir).split("train").lengths
    percentiles = manifest.seq_len_percentiles
    assert (percentiles[0], percentiles[100]) == (lengths.min(), lengths.max())
    assert list(percentiles) == sorted(percentiles)
    assert set(percentiles) <= set(lengths.tolist())


def test_the_profile_counts_the_validation_texts(job: JobConfig) -> None:
    profile = load_bundle(job.bundle_dir).manifest.profile

    validation = load_shards(job.shards_dir).split("validation")
    assert profile.num_texts == len(validation) == sum(profile.length_counts)
    assert profile.num_tokens == validation.lengths.sum()
    assert 0 <= profile.num_unknown_tokens < profile.num_tokens
    assert sum(profile.label_counts.values()) == sum(profile.confidence_counts) == len(validation)
    assert set(profile.label_counts) <= set(LABELS)


def test_the_gate_tells_rows_flips_classes_and_buckets(job: JobConfig) -> None:
    gate = load_bundle(job.bundle_dir).manifest.quality["gate"]

    assert (gate["rows"], gate["texts"], gate["counted"]) == (40, 40, "rows")
    assert gate["outcome"] == "too few rows to tell"
    assert gate["accepted"] is None
    assert set(gate["by_bucket"]) == {"1-8", "9-24"}
    assert sum(part["rows"] for part in gate["by_bucket"].values()) == 40
    assert set(gate["by_class"]) <= set(LABELS)
    assert gate["sentence"].startswith("FP32 stays the default, too few rows to tell: on 40")


def test_the_default_model_follows_the_gate(job: JobConfig) -> None:
    manifest = load_bundle(job.bundle_dir).manifest

    passed = manifest.quality["gate"]["passed"]
    assert manifest.default_model == ("model_int8.onnx" if passed else "model.onnx")


def test_a_second_export_keeps_the_bundle(job: JobConfig) -> None:
    before = (job.bundle_dir / "manifest.json").stat().st_mtime_ns

    result = export(job)

    assert result.is_reused
    assert (job.bundle_dir / "manifest.json").stat().st_mtime_ns == before
    assert "default model" in result.summary


@pytest.mark.slow
def test_a_damaged_bundle_is_written_again(tmp_path: Path) -> None:
    job = write_job_folders(tmp_path)
    job = job.model_copy(update={"export": job.export.model_copy(update={"int8": False})})
    export(job)
    (job.bundle_dir / "model.onnx").unlink()

    assert not export(job).is_reused

    manifest = load_bundle(job.bundle_dir).manifest
    assert manifest.quality["gate"] is None
    assert manifest.default_model == "model.onnx"


@pytest.mark.slow
@pytest.mark.parametrize("task", [Task.TOKEN, Task.MULTI_LABEL])
def test_every_task_is_exported_fused_and_verified(tmp_path: Path, task: Task) -> None:
    job = write_job_folders(tmp_path, task)

    export(job)

    assert any("model_int8.onnx: finite logits" in line for line in verify(job.bundle_dir))
    manifest = load_bundle(job.bundle_dir).manifest
    assert (manifest.task, manifest.takes_pairs) == (task.value, False)
    assert manifest.quality["fusion"]["counts"] == FUSED


@pytest.mark.slow
def test_multi_label_models_are_judged_by_exact_match(tmp_path: Path) -> None:
    job = write_job_folders(tmp_path, Task.MULTI_LABEL)

    result = export(job)

    quality = load_bundle(job.bundle_dir).manifest.quality
    assert quality["gate"]["measure"] == "exact match"
    assert set(quality["gate"]["by_class"]) <= set(LABELS)
    assert "exact match" in result.summary
    assert set(quality["micro_f1"]) == set(quality["accuracy"]) == set(quality["macro_f1"])


@pytest.mark.slow
def test_a_model_of_pairs_is_fused_whole_and_says_what_it_takes(tmp_path: Path) -> None:
    job = write_job_folders(tmp_path, takes_pairs=True)

    export(job)

    assert any("model_int8.onnx: finite logits" in line for line in verify(job.bundle_dir))
    manifest = load_bundle(job.bundle_dir).manifest
    assert manifest.takes_pairs
    assert manifest.quality["fusion"]["counts"] == FUSED
    assert manifest.batch_shift["model.onnx"].logit < 1e-5


def test_shards_of_another_training_are_refused(job: JobConfig, tmp_path: Path) -> None:
    shutil.copytree(job.output_dir, tmp_path / "job")
    other = job.model_copy(update={"output_dir": str(tmp_path / "job")})
    manifest = json.loads((other.shards_dir / "manifest.json").read_text())
    manifest["fingerprint"] = "shards-2"
    (other.shards_dir / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(FolderError, match="trained on other shards"):
        export(other)


@pytest.mark.slow
def test_a_failed_check_leaves_the_old_bundle(job: JobConfig, tmp_path: Path) -> None:
    shutil.copytree(job.output_dir, tmp_path / "job")
    strict = job.model_copy(
        update={
            "output_dir": str(tmp_path / "job"),
            "export": job.export.model_copy(update={"atol": 1e-12}),
        }
    )
    before = hash_files(strict.bundle_dir)

    with pytest.raises(ExportError, match="differ from torch's"):
        export(strict)

    assert hash_files(strict.bundle_dir) == before
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == [
        "bundle",
        "checkpoint",
        "shards",
    ]


def test_verify_says_what_it_checked(job: JobConfig) -> None:
    lines = verify(job.bundle_dir)

    assert "files have the sha256 of the manifest" in lines[0]
    assert "model.onnx: opset 14, dynamic axes batch and seq" in lines
    assert any("model_int8.onnx: finite logits" in line for line in lines)


def test_verify_names_an_altered_file(copied_bundle: Path) -> None:
    path = copied_bundle / "model_int8.onnx"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))

    with pytest.raises(AlteredFileError, match=r"model_int8\.onnx: the file was changed"):
        verify(copied_bundle)


def test_verify_names_a_missing_file(copied_bundle: Path) -> None:
    (copied_bundle / "tokenizer.json").unlink()

    with pytest.raises(MissingFileError, match=r"tokenizer\.json"):
        verify(copied_bundle)


def test_verify_refuses_a_tokenizer_that_was_not_trained_with(copied_bundle: Path) -> None:
    path = copied_bundle / "tokenizer.json"
    path.write_text(path.read_text().replace("word7", "wordx"))
    _rehash(copied_bundle)

    with pytest.raises(AlteredFileError, match="not those of training"):
        verify(copied_bundle)


def test_verify_refuses_weights_that_are_not_finite(copied_bundle: Path) -> None:
    path = copied_bundle / "model.onnx"
    model = onnx.load(path)
    bias = next(item for item in model.graph.initializer if item.name == "classifier.bias")
    values = onnx.numpy_helper.to_array(bias) * float("nan")
    bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))
    onnx.save(model, path)
    _rehash(copied_bundle)

    with pytest.raises(
        ExportError,
        match=r"model\.onnx: tensors of the graph hold NaN \(got \['classifier\.bias'\]\)",
    ):
        verify(copied_bundle)


def test_verify_refuses_a_graph_with_a_fixed_axis(copied_bundle: Path) -> None:
    path = copied_bundle / "model.onnx"
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 16
    onnx.save(model, path)
    _rehash(copied_bundle)

    with pytest.raises(ExportError, match=r"model\.onnx: input_ids: the axes must be"):
        verify(copied_bundle)


def test_verify_warns_of_files_that_the_manifest_does_not_name(copied_bundle: Path) -> None:
    (copied_bundle / "notes.txt").write_text("x")

    assert "warning: not named by the manifest, and never read: notes.txt" in verify(copied_bundle)
