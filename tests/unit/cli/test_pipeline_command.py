"""The command line: help that teaches, errors in one line, settings with their origin."""

import json

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


def test_help_names_the_commands_of_the_other_packages(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    help_text = capsys.readouterr().out
    assert "predict" in help_text
    assert "demo" in help_text


def test_verify_of_a_folder_that_is_no_bundle_names_its_manifest(tmp_path, capsys):
    status = main(["verify", str(tmp_path)])

    assert status == 2
    assert "manifest.json" in " ".join(capsys.readouterr().err.split())


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
