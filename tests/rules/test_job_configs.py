"""Every job file loads, and none shares its output with another."""

from pathlib import Path

import pytest

from pipeline.config import load_job

FILES = sorted((Path(__file__).parents[2] / "job_configs").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_job_file_loads_and_is_named_like_its_file(file):
    job = load_job(file).settings

    assert job.name == file.stem


def test_no_two_jobs_write_to_the_same_folder():
    folders = [load_job(file).settings.output_dir for file in FILES]

    assert len(set(folders)) == len(folders) >= 2
