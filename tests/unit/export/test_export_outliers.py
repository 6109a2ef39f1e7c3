"""One channel that is a hundred times larger ruins INT8, and the gate sees it."""

from pathlib import Path

import pytest
from counting_samples import write_counting_job

from pipeline.contract.bundle import BundleManifest, load_bundle
from pipeline.export.run import export

pytestmark = pytest.mark.slow


def _export(output_dir: Path, *, activations: str, outlier: float) -> BundleManifest:
    job = write_counting_job(output_dir, outlier=outlier)
    settings = job.export.model_copy(update={"int8_activations": activations})
    export(job.model_copy(update={"export": settings}))
    return load_bundle(job.bundle_dir).manifest


def test_a_model_without_outliers_passes_the_gate(tmp_path: Path) -> None:
    manifest = _export(tmp_path, activations="tensor", outlier=1.0)

    gate = manifest.quality["gate"]
    assert (gate["fp32_accuracy"], gate["int8_accuracy"], gate["passed"]) == (1.0, 1.0, True)
    assert manifest.default_model == "model_int8.onnx"


@pytest.mark.parametrize("activations", ["tensor", "row"])
def test_an_outlier_channel_fails_the_gate_and_the_manifest_says_why(
    tmp_path: Path, activations: str
) -> None:
    manifest = _export(tmp_path, activations=activations, outlier=100.0)

    quality = manifest.quality
    assert quality["parity"]["max_abs_difference"] < 1e-5
    assert quality["gate"]["fp32_accuracy"] == 1.0
    assert quality["gate"]["int8_accuracy"] < 0.9
    assert not quality["gate"]["passed"]
    assert manifest.default_model == "model.onnx"
    assert "FP32 stays the default" in quality["gate"]["sentence"]
    # The scale of a token does not help: every token has the outlier.
    assert quality["int8"]["activations"] == activations
    assert min(one["mean_error"] for one in quality["int8"]["candidates"]) > 0.05
