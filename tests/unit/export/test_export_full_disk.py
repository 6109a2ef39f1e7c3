"""A full disk: named with its place, and nothing is left of what was begun."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from export_samples import write_job_folders
from rich.console import Console

from pipeline.config import JobConfig
from pipeline.contract.errors import FolderError
from pipeline.export import external_data, fill
from pipeline.export.run import export
from pipeline.export.sensitivity import explore_sensitivity

pytestmark = pytest.mark.slow


def _explore(job: JobConfig) -> object:
    return explore_sensitivity(job, console=Console(quiet=True))


def _run_out_of_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", [export, _explore])
@pytest.mark.parametrize(
    ("module", "name"), [(torch.onnx, "export"), (external_data, "_write_graph")]
)
def test_a_full_disk_is_named_wherever_it_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any, module: Any, name: str
) -> None:
    job = write_job_folders(tmp_path)
    monkeypatch.setattr(module, name, _run_out_of_space)

    with pytest.raises(FolderError, match=rf"{tmp_path}.*: the disk is full; .* another disk"):
        call(job)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "shards"]


def test_an_older_bundle_outlives_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job_folders(tmp_path)
    job = job.model_copy(update={"export": job.export.model_copy(update={"fuse": False})})
    export(job)
    monkeypatch.setattr(fill, "write_reference", _run_out_of_space)

    with pytest.raises(FolderError, match="the disk is full"):
        export(job, force=True)

    assert export(job).is_reused
