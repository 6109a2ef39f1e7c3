"""What a person may decide at export: to serve INT8 all the same, and to see the graphs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from export_samples import write_job_folders

from pipeline.config import JobConfig
from pipeline.contract.bundle import BundleManifest, load_bundle
from pipeline.contract.errors import ConfigError
from pipeline.export.run import export

pytestmark = pytest.mark.slow

REASON = "0.4 points lost [twice as fast]"


def _change(job: JobConfig, **settings: Any) -> JobConfig:
    return job.model_copy(update={"export": job.export.model_copy(update=settings)})


@pytest.fixture
def job(tmp_path: Path) -> JobConfig:
    return _change(write_job_folders(tmp_path / "job"), fuse=False)


def _manifest(job: JobConfig) -> BundleManifest:
    return load_bundle(job.bundle_dir).manifest


def test_int8_is_accepted_on_record_until_an_export_without_it(
    job: JobConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    result = export(job, accept=f" {REASON} ")

    gate = _manifest(job).quality["gate"]
    assert _manifest(job).default_model == "model_int8.onnx"
    assert not gate["passed"]
    assert gate["accepted"]["reason"] == REASON
    assert gate["accepted"]["at"] == datetime.now(UTC).date().isoformat()
    assert "default model model_int8.onnx (accepted)" in result.summary
    assert f"INT8 is the default, accepted ({REASON})" in capsys.readouterr().err

    assert export(job, accept=REASON).is_reused

    assert not export(job).is_reused
    assert _manifest(job).default_model == "model.onnx"
    assert _manifest(job).quality["gate"]["accepted"] is None
    error = capsys.readouterr().err
    assert f"INT8 was accepted ({REASON}); without --accept it is judged anew" in error


def test_accepting_what_passes_is_said_and_leaves_no_record(
    job: JobConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _change(job, max_accuracy_drop=1.0)

    result = export(job, accept=REASON)

    gate = _manifest(job).quality["gate"]
    assert (gate["outcome"], gate["accepted"]) == ("passed", None)
    assert _manifest(job).default_model == "model_int8.onnx"
    assert "(accepted)" not in result.summary
    assert "the gate passed INT8 by itself, so --accept was not needed" in capsys.readouterr().err


def test_without_int8_there_is_nothing_to_accept_and_the_graph_is_dumped_of_a_kept_bundle_too(
    job: JobConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _change(job, int8=False)

    export(job, accept=REASON)

    assert "there is no INT8 model, so --accept has nothing to accept" in capsys.readouterr().err
    assert _manifest(job).default_model == "model.onnx"
    result = export(job, accept=REASON, dump_optimized=tmp_path / "graphs")
    assert result.is_reused
    [dumped] = [path for path in (tmp_path / "graphs").rglob("*") if path.is_file()]
    assert dumped.parent.name == "model"
    assert "model.onnx as ONNX Runtime optimises it here → " in capsys.readouterr().err


def test_what_is_no_reason_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    job = JobConfig.model_validate(
        {"name": "none", "output_dir": str(tmp_path / "none"), "data": {"files": ["none.csv"]}}
    )

    with pytest.raises(ConfigError, match="--accept: a reason is needed"):
        export(job, accept=" ")
