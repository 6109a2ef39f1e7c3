"""A whole bundle's checks, repeated without torch, and what they find when a file was changed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from export_samples import write_job_folders
from onnx import numpy_helper

from pipeline.config import JobConfig
from pipeline.contract.bundle import load_bundle, seal_manifest
from pipeline.contract.errors import (
    AlteredFileError,
    ExportError,
    FolderError,
    MissingFileError,
    SchemaVersionError,
)
from pipeline.contract.folder import hash_files, read_manifest, write_manifest
from pipeline.export.run import export
from pipeline.export.verify import verify

ROOT = Path(__file__).parents[3]
WITHOUT_TORCH = """
import sys
from pathlib import Path

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "ray"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from pipeline.export.verify import verify
print(*verify(Path(sys.argv[1]), shards_dir=Path(sys.argv[2])), sep="\\n")
assert not {"torch", "ray"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    """A job whose bundle is written; tests that change files copy it first."""
    job = write_job_folders(tmp_path_factory.mktemp("job"))
    export(job)
    return job


@pytest.fixture
def bundle(job: JobConfig, tmp_path: Path) -> Path:
    return Path(shutil.copytree(job.bundle_dir, tmp_path / "bundle"))


def _rewrite(folder: Path, **changes: Any) -> None:
    """Seal a changed bundle again, as somebody would who wants to be believed."""
    manifest = read_manifest(folder)
    manifest.update({"files": hash_files(folder), **changes})
    write_manifest(folder, seal_manifest(manifest))


def _scale_classifier(path: Path, factor: float) -> None:
    model = onnx.load(path)
    tensor = next(
        item for item in model.graph.initializer if item.name.startswith("classifier.weight")
    )
    values = numpy_helper.to_array(tensor) * np.float32(factor)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, path)


@pytest.mark.slow
def test_every_check_is_repeated_without_torch(job: JobConfig) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(job.bundle_dir), str(job.shards_dir)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    for line in (
        "files have the sha256 of the manifest (tiny-",
        "the tokenizer gives the ids of training",
        "model.onnx: opset 14, dynamic axes batch and seq",
        "model_int8.onnx: opset 14, dynamic axes batch and seq",
        "model_int8.onnx: 12 weights are INT8,",
        "model.onnx: finite logits for [batch, seq] of [1, 16], [2, 16], [32, 16], [1, 24]",
        "model.onnx: largest error ",
        "model_int8.onnx: mean error ",
        "from torch's logits on 12 stored inputs (",
        "model.onnx: batch shift ",
        "model_int8.onnx: batch shift ",
        "on 40 validation rows, ",
        "on validation texts, ",
        "the default model is model",
    ):
        assert line in done.stdout, line


@pytest.mark.slow
def test_a_fused_graph_that_lost_a_fusion_is_refused(bundle: Path) -> None:
    quality = read_manifest(bundle)["quality"]
    counts = {"Attention": 3, "Gelu": 3, "LayerNormalization": 6}
    quality["fusion"] = {"kept": "fused", "counts": counts}
    _rewrite(bundle, quality=quality)

    with pytest.raises(ExportError, match=r"model\.onnx: the fusion is not whole: .*layer"):
        verify(bundle)


def test_an_fp32_model_with_other_weights_is_refused(bundle: Path) -> None:
    _scale_classifier(bundle / "model.onnx", 1.1)
    _rewrite(bundle)

    with pytest.raises(ExportError, match=r"model\.onnx: its largest error from torch's logits"):
        verify(bundle)


def test_an_int8_model_with_other_weights_is_refused(bundle: Path) -> None:
    _scale_classifier(bundle / "model_int8.onnx", 1.5)
    _rewrite(bundle)

    with pytest.raises(ExportError, match=r"model_int8\.onnx: its mean error from torch's logits"):
        verify(bundle)


def test_a_float_model_under_the_name_of_int8_is_refused(bundle: Path) -> None:
    shutil.copyfile(bundle / "model.onnx", bundle / "model_int8.onnx")
    _rewrite(bundle)

    with pytest.raises(ExportError, match=r"model_int8\.onnx: the weights of .* must be INT8"):
        verify(bundle)


def test_a_foreign_file_among_the_stored_logits_is_refused(bundle: Path) -> None:
    (bundle / "reference/test_data_set_0/notes.txt").write_text("")

    with pytest.raises(FolderError, match=r"notes\.txt: not part of the grid"):
        verify(bundle)


def test_changed_logits_of_torch_are_an_altered_file(bundle: Path) -> None:
    path = bundle / "reference/test_data_set_3/output_0.pb"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")

    with pytest.raises(
        AlteredFileError, match=r"test_data_set_3/output_0\.pb: the file was changed"
    ):
        verify(bundle)


def test_a_bundle_without_torchs_logits_is_refused(bundle: Path) -> None:
    shutil.rmtree(bundle / "reference")
    _rewrite(bundle)

    with pytest.raises(MissingFileError, match="the bundle has no logits of torch"):
        verify(bundle)


def test_figures_that_a_check_needs_are_named_where_they_lack(bundle: Path) -> None:
    quality = read_manifest(bundle)["quality"]
    del quality["reference"]["model_int8.onnx"]
    _rewrite(bundle, quality=quality)

    with pytest.raises(ExportError, match=r"quality → reference → model_int8\.onnx"):
        verify(bundle)


def test_an_accuracy_that_is_not_found_again_is_refused(bundle: Path, job: JobConfig) -> None:
    quality = read_manifest(bundle)["quality"]
    quality["gate"]["int8_accuracy"] += 0.2
    _rewrite(bundle, quality=quality)

    verify(bundle)
    with pytest.raises(ExportError, match=r"model_int8\.onnx: its accuracy on 40 validation rows"):
        verify(bundle, shards_dir=job.shards_dir)


def test_a_bundle_of_an_earlier_schema_says_what_to_do(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    write_manifest(bundle, {**manifest, "schema_version": 2})

    with pytest.raises(SchemaVersionError, match=r"reads bundles of schema 4 \(got 2\).*again"):
        verify(bundle)


def test_without_cuda_an_fp16_model_is_read_but_not_run(bundle: Path) -> None:
    shutil.copyfile(bundle / "model.onnx", bundle / "model_fp16.onnx")
    shift = read_manifest(bundle)["batch_shift"]
    shift["model_fp16.onnx"] = shift["model.onnx"]
    quality = read_manifest(bundle)["quality"]
    quality["fusion"]["kept"] = "unfused"  # A graph fused for a CPU is not one for CUDA.
    _rewrite(bundle, target="cuda", batch_shift=shift, quality=quality)

    lines = verify(bundle)

    assert "model_fp16.onnx: opset 14, dynamic axes batch and seq" in lines
    assert "model_fp16.onnx: not run, it is for CUDA and there is none here" in lines
    assert not any(line.startswith("model_fp16.onnx: finite") for line in lines)


def test_8_bit_weights_are_warned_of_where_the_cpu_may_overflow(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx2\n")
    monkeypatch.setattr("pipeline.export.cpu_flags._CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    quality = read_manifest(bundle)["quality"]
    quality["int8"]["reduce_range"] = False
    _rewrite(bundle, quality=quality)

    lines = verify(bundle)

    assert any(line.startswith("warning: the INT8 weights have 8 bits") for line in lines)


def test_an_empty_folder_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"manifest\.json"):
        verify(tmp_path)


def test_load_bundle_still_takes_what_was_rewritten(bundle: Path) -> None:
    _rewrite(bundle)

    assert load_bundle(bundle).manifest.quality["reference"]
