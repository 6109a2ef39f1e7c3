"""The command line: help that teaches, errors in one line, settings with their origin."""

import json
import subprocess
import sys

import pytest

from pipeline.__main__ import main

JOB = "name: small\noutput_dir: out\ndata:\n  files: [rows.csv]\n"


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_config_tells_where_each_value_came_from(job_file, capsys, monkeypatch):
    monkeypatch.setenv("TEXTLANE_TRAIN__BASE_LR", "1e-4")

    status = main(["config", "--json", "--config", str(job_file), "--set", "train.epochs=2"])

    values = json.loads(capsys.readouterr().out)
    assert status == 0
    assert values["train.base_lr"] == {
        "value": 1e-4,
        "from": "environment TEXTLANE_TRAIN__BASE_LR",
    }
    assert values["train.epochs"] == {"value": 2, "from": "--set"}
    assert values["output_dir"] == {"value": "out", "from": str(job_file)}
    assert values["train.micro_batch"] == {"value": 32, "from": "default"}


def test_config_prints_one_line_for_each_setting(job_file, capsys):
    main(["config", "--config", str(job_file)])

    lines = capsys.readouterr().out.splitlines()
    assert ["name", '"small"', str(job_file)] in [line.split() for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "train.epoch=2"], "--set: train.epoch: unknown setting (got 2)."),
        (["--set", "train.epochs=two"], "--set: train.epochs: input should be a valid integer"),
        (["--set", "train.epochs"], "--set needs key=value (got 'train.epochs')"),
        (["--set", "=1"], "--set needs key=value"),
        (["--set", "name=2026-99-99"], "--set: the value is not YAML (got '2026-99-99')"),
        (["--set", f"name={'[' * 1500}"], "--set: the value is not YAML"),
        (["--set", "train.min_lr=1"], "min_lr 1 is over the peak learning rate 3.75e-05"),
        (["--set", "train.micro_batch=64"], "micro_batch 64 is over global_batch 32"),
        (["--set", "name=../up"], "--set: name: string should match pattern"),
        (["--set", f"name={'x' * 65}"], "--set: name: string should match pattern"),
        (["--set", "name="], "--set: name: input should be a valid string (got None)"),
        (["--set", "data.files=[]"], "--set: data.files: the list should have at least 1 item"),
    ],
)
def test_a_wrong_setting_is_one_line_and_status_2(job_file, capsys, arguments, message):
    status = main(["config", "--config", str(job_file), *arguments])

    error = " ".join(capsys.readouterr().err.split())
    assert status == 2
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty; it must hold a mapping of sections. `textlane config"),
        ("- a", "the file must hold a mapping of sections"),
        ("a: [", "job.yaml:1: not valid YAML: expected the node content"),
        ("name: x\n data: y", "job.yaml:2: not valid YAML: mapping values are not allowed here."),
        ("name: x\n data: y", "Correct this line or one above it: `key: value`"),
        ("name: 2026-99-99", "not valid YAML"),
        ("name: \x00", "not valid YAML"),
        ("name: x", "the setting is missing"),
    ],
)
def test_a_file_that_is_no_job_is_refused_by_name(tmp_path, capsys, text, message):
    path = tmp_path / "job.yaml"
    path.write_text(text)

    status = main(["run", "--config", str(path)])

    error = " ".join(capsys.readouterr().err.split())
    assert status == 2
    assert message in error
    assert "job.yaml" in error


def test_a_missing_file_says_where_complete_ones_are(tmp_path, capsys):
    status = main(["run", "--config", str(tmp_path / "no.yaml")])

    assert status == 2
    assert "job_configs holds complete files" in " ".join(capsys.readouterr().err.split())


def test_debug_shows_the_traceback(job_file):
    with pytest.raises(ValueError, match="unknown setting"):
        main(["config", "--config", str(job_file), "--set", "nope=1", "--debug"])


@pytest.mark.parametrize(
    "command",
    ["prepare", "train", "evaluate", "export", "run", "config", "verify", "inspect"],
)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])

    assert len(capsys.readouterr().out) > 200


def test_help_lists_every_command_with_one_line(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    help_text = " ".join(capsys.readouterr().out.split())
    assert "predict label texts with a bundle, without a server" in help_text
    assert "demo run a job, serve its bundle, send real requests" in help_text
    assert "train train on the shards" in help_text


def test_a_command_that_is_not_there_is_answered_with_all_that_are(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["traim"])

    error = capsys.readouterr().err
    assert "invalid choice: 'traim'" in error
    for command in ("prepare", "train", "inspect", "config", "predict", "demo"):
        assert repr(command) in error


@pytest.mark.slow
def test_the_list_of_commands_loads_none_of_them():
    code = (
        "import sys; from pipeline.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('serve_app.__main__', 'cluster.demo', 'numpy') if m in sys.modules])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert result.stdout.splitlines()[-1] == "[]", result.stderr


def test_verify_of_a_folder_that_is_no_bundle_names_its_manifest(tmp_path, capsys):
    status = main(["verify", str(tmp_path)])

    assert status == 2
    assert "manifest.json" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_the_folder_around_others_names_them(tmp_path, capsys, command):
    for name in ("shards", "bundle"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")

    assert main([command, str(tmp_path)]) == 2

    error = " ".join(capsys.readouterr().err.split())
    assert f"Name one of the folders in it: {tmp_path}/bundle, {tmp_path}/shards." in error


def test_a_name_that_the_file_system_refuses_is_one_line_and_status_2(capsys):
    status = main(["verify", "x" * 300])

    error = capsys.readouterr().err
    assert status == 2
    assert "File name too long" in " ".join(error.split())
    assert "Traceback" not in error


def test_text_with_underscores_stays_text(job_file, capsys):
    main(["config", "--json", "--config", str(job_file), "--set", "data.text_column=12_5e0"])

    assert json.loads(capsys.readouterr().out)["data.text_column"]["value"] == "12_5e0"


@pytest.fixture
def explained(capsys):
    assert main(["config", "--explain", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_explain_needs_no_job_and_leaves_no_setting_out(explained, job_file, capsys):
    main(["config", "--json", "--config", str(job_file)])

    assert set(explained) == set(json.loads(capsys.readouterr().out))
    assert all(help_of["meaning"] and help_of["allowed"] for help_of in explained.values())


@pytest.mark.parametrize(
    ("key", "allowed", "default"),
    [
        ("name", "text", None),
        ("data.files", "list of texts", None),
        ("data.label_names", "mapping of text to text", {}),
        ("data.sample_rows", "whole number from 1 or null", None),
        ("train.base_lr", "number over 0", 3e-4),
        ("train.precision", "fp32, bf16 or fp16", "fp32"),
        ("model.dropout", "number from 0 under 1", 0.1),
        ("ray.use_gpu", "true or false", False),
    ],
)
def test_explain_says_what_a_setting_may_be(explained, key, allowed, default):
    assert (explained[key]["allowed"], explained[key]["default"]) == (allowed, default)


def test_explain_shows_the_meaning_and_of_a_job_also_the_value(job_file, capsys):
    sets = ["--set", "data.label_names={a: b}"]

    main(["config", "--explain", "--config", str(job_file), *sets])

    paragraphs = capsys.readouterr().out.split("\n\n")
    lines = {text.split("\n")[0]: text.strip().split("\n    ")[1:] for text in paragraphs}
    assert lines["train.base_lr"] == [
        "Peak learning rate for a global batch of 256; used: base_lr × global_batch / 256.",
        "number over 0; default: 0.0003",
        "here: 0.0003 (default)",
    ]
    assert lines["data.label_names"][-1] == 'here: {"a": "b"} (--set)'
    assert lines["name"][1:] == ["text; default: none, must be set", f'here: "small" ({job_file})']


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config: there is no job to show. Name its YAML file, or add --explain"),
        (["--explain", "--set", "seed=1"], "--set: there is no job to set this in"),
    ],
)
def test_config_without_a_job_says_what_to_add(capsys, arguments, message):
    assert main(["config", *arguments]) == 2

    assert message in " ".join(capsys.readouterr().err.split())
