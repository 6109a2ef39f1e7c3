"""`textlane export` and `textlane verify`: what is parsed, handed on, printed and written."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.__main__ import main
from pipeline.stage import StageResult

JOB = "name: small\noutput_dir: out\ndata:\n  files: [rows.csv]\n"


@pytest.fixture
def job_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


@pytest.fixture
def exported(monkeypatch):
    """The calls that reach the export stage, which is loaded only when it is asked for."""
    calls = []

    def export(job, **options):
        calls.append({"job": job.name, **options})
        return StageResult(folder=Path("bundle"), is_reused=False, summary="small-1 [kept]")

    monkeypatch.setitem(sys.modules, "pipeline.export.run", SimpleNamespace(export=export))
    return calls


def explore(job, *, console):
    figures = {"layers": [{"name": "encoder.layers.0", "error": 0.5}]}
    return SimpleNamespace(as_text=lambda: "layer  error", as_figures=lambda: figures)


@pytest.fixture
def explored(monkeypatch):
    module = SimpleNamespace(explore_sensitivity=explore)
    monkeypatch.setitem(sys.modules, "pipeline.export.sensitivity", module)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], {"force": False, "accept": None, "dump_optimized": None}),
        (["--force"], {"force": True, "accept": None, "dump_optimized": None}),
        (["--accept", "fast"], {"force": False, "accept": "fast", "dump_optimized": None}),
        (["--accept", ""], {"force": False, "accept": "", "dump_optimized": None}),
        (
            ["--dump-optimized", "graphs"],
            {"force": False, "accept": None, "dump_optimized": Path("graphs")},
        ),
    ],
)
def test_export_hands_its_options_on(job_file, exported, capsys, arguments, options):
    status = main(["export", "--config", job_file, *arguments])

    assert status == 0
    assert exported == [{"job": "small", **options}]
    error = capsys.readouterr().err
    assert "export (0.0 s): small-1 [kept] → bundle" in error


def test_export_takes_settings_of_the_command_line(job_file, exported):
    assert main(["export", "--config", job_file, "--set", "export.atol=0"]) == 2
    assert main(["export", "--config", job_file, "--set", "name=other"]) == 0

    assert [call["job"] for call in exported] == ["other"]


def test_sensitivity_prints_a_table_and_writes_its_figures_but_no_bundle(
    job_file, exported, explored, capsys
):
    status = main(["export", "--config", job_file, "--sensitivity"])

    assert (status, exported) == (0, [])
    assert capsys.readouterr().out == "layer  error\n"
    written = json.loads(Path("out/sensitivity.json").read_text())
    assert written == {"layers": [{"name": "encoder.layers.0", "error": 0.5}]}
    assert [path.name for path in Path("out").iterdir()] == ["sensitivity.json"]


@pytest.mark.parametrize("other", [["--accept", "x"], ["--dump-optimized", "x"], ["--force"]])
def test_sensitivity_is_refused_beside_what_is_about_a_bundle(
    job_file, exported, explored, capsys, other
):
    status = main(["export", "--config", job_file, "--sensitivity", *other])

    error = " ".join(capsys.readouterr().err.split())
    assert (status, exported) == (2, [])
    assert f"--sensitivity: it has no use beside {other[0]}" in error
    assert not Path("out").exists()


@pytest.mark.parametrize("arguments", [["--accept"], ["--dump-optimized"], ["--sensitiv=1"]])
def test_an_option_without_its_value_is_refused(job_file, exported, capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(["export", "--config", job_file, *arguments])

    assert exported == []


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ([], [(Path("b"), None)]),
        (["--shards", "s"], [(Path("b"), Path("s"))]),
    ],
)
def test_verify_hands_the_folders_on_and_prints_what_was_checked(
    monkeypatch, capsys, arguments, called
):
    calls = []

    def verify(bundle_dir, *, shards_dir=None):
        calls.append((bundle_dir, shards_dir))
        return ["3 files", "the tokenizer"]

    monkeypatch.setitem(sys.modules, "pipeline.export.verify", SimpleNamespace(verify=verify))

    status = main(["verify", "b", *arguments])

    assert (status, calls) == (0, called)
    assert capsys.readouterr().out.splitlines() == ["3 files", "the tokenizer"]


@pytest.mark.parametrize(
    ("command", "taught"),
    [
        ("export", ["--accept REASON", "--sensitivity", "95 % confidence", "export.keep_float"]),
        ("verify", ["--shards outputs/demo_cpu/shards", "exit status is 2"]),
    ],
)
def test_help_teaches_with_examples(command, taught, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])

    text = " ".join(capsys.readouterr().out.split())
    assert f"examples: textlane {command} " in text
    for part in taught:
        assert part in text
