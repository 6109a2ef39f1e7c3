"""Every job file loads, can be submitted, and none shares its output with another."""

import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.config import load_job

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "job_configs").glob("*.yaml"))
SUBMITTED = re.findall(
    r"^ {4}(ray job submit .*)$", (ROOT / "job_configs/README.md").read_text(), flags=re.M
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_job_file_loads_and_is_named_like_its_file(file):
    job = load_job(file).settings

    assert job.name == file.stem


def test_no_two_jobs_write_to_the_same_folder():
    folders = [load_job(file).settings.output_dir for file in FILES]

    assert len(set(folders)) == len(folders) >= 2


def config_of(line):
    words = shlex.split(line)
    return words[words.index("--config") + 1]


def test_each_job_file_has_one_line_that_submits_it():
    assert sorted(map(config_of, SUBMITTED)) == [f"job_configs/{file.name}" for file in FILES]


@pytest.mark.parametrize("line", SUBMITTED, ids=config_of)
def test_a_submitted_job_finds_its_inputs_and_keeps_its_outputs(line):
    words = shlex.split(line)
    sets = [word for before, word in pairwise(words) if before == "--set"]
    carried = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    job = load_job(ROOT / config_of(line), sets).settings

    data = job.data
    locations = [*data.files, *(data.validation_files or ()), *(data.test_files or ())]
    assert words[:7] == ["ray", "job", "submit", "--working-dir", ".", "--", "python"]
    assert words[7:10] == ["-m", "pipeline", "run"]
    assert Path(job.output_dir) == Path("/shared") / job.name
    for location in locations:
        assert location.startswith(("package://", "/shared/")) or location in carried
