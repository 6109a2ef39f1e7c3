"""Printing to terminals that lack characters and to readers that have left."""

import json
import os
import subprocess
import sys

import pytest

UTF8 = {"PYTHONUTF8": "1"}
ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
JOB = "name: small\noutput_dir: {folder}\ndata:\n  files: [größer.csv]\n  label_names: {{漢: 😀}}\n"
PREAMBLE = "from pipeline.contract.text_output import any_output, print_text\n"


def run(arguments, environ, **options):
    command = [sys.executable, *map(str, arguments)]
    environ = {**os.environ, **environ}
    environ.pop("PYTHONUNBUFFERED", None)
    return subprocess.run(command, env=environ, capture_output=True, **options)


def run_unread(arguments):
    """Run with a standard output whose reader has left before anything is written."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    try:
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=environ,
            stdout=write_end,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(write_end)


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(folder=tmp_path / "out"), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("environ", [UTF8, ASCII, C_LOCALE])
def test_json_stays_json_whatever_the_encoding_lacks(job_file, environ):
    result = run(["-m", "pipeline", "config", "--json", "--config", job_file], environ)

    assert (result.returncode, result.stderr) == (0, b"")
    values = json.loads(result.stdout)
    assert values["data.files"]["value"] == ["größer.csv"]
    assert values["data.label_names.漢"]["value"] == "😀"


@pytest.mark.slow
@pytest.mark.parametrize("environ", [ASCII, C_LOCALE])
def test_lines_for_people_escape_what_the_encoding_lacks(job_file, environ):
    result = run(["-m", "pipeline", "config", "--config", job_file], environ)

    assert result.returncode == 0
    assert b"gr\\u00f6\\u00dfer.csv" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "pipeline", "--help"],
        ["-m", "pipeline", "export", "--help"],
        ["-m", "serve_app", "load", "--help"],
        ["-m", "serve_app", "predict", "--help"],
        ["-m", "cluster", "serve", "--help"],
    ],
)
def test_help_is_printed_in_ascii_and_to_a_reader_that_has_left(arguments):
    in_ascii, unread = run(arguments, ASCII), run_unread(arguments)

    assert (in_ascii.returncode, in_ascii.stderr) == (0, b"")
    assert (unread.returncode, unread.stderr) == (0, b"")


@pytest.mark.slow
def test_a_reader_that_has_left_is_no_mistake(job_file):
    result = run_unread(["-m", "pipeline", "config", "--config", job_file])

    assert (result.returncode, result.stderr) == (0, b"")


def test_who_prints_on_and_on_is_told_that_the_reader_has_left():
    code = "import sys\nwith any_output():\n  print(print_text('a'), file=sys.stderr)"

    result = run_unread(["-c", PREAMBLE + code])

    assert result.stderr == b"False\n"


@pytest.mark.slow
def test_a_disk_that_is_full_is_an_error_of_one_line(job_file):
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "pipeline", "config", "--config", str(job_file)],
            stdout=full,
            stderr=subprocess.PIPE,
        )

    assert result.returncode == 2
    assert result.stderr.startswith(b"error: [Errno 28] No space left on device")
    assert result.stderr.count(b"\n") == 1


def test_a_name_that_the_locale_cannot_write_says_what_to_set(tmp_path):
    code = "with any_output():\n  open('/tmp/gr\\u00f6\\u00dfer-that-is-not-there')"

    result = run(["-c", PREAMBLE + code], C_LOCALE)

    last = result.stderr.splitlines()[-1]
    assert b"ConfigError: this locale's encoding, " in last
    assert b"Set PYTHONUTF8=1" in last


@pytest.mark.slow
def test_a_process_without_standard_output_prints_nothing():
    command = [sys.executable, "-m", "pipeline", "config", "--explain"]

    result = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, check=False
    )

    assert (result.returncode, result.stderr) == (0, b"")
