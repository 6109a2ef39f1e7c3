"""The pretrained folder is looked at before any work, and the message says how to get one."""

import sys

import pytest

from pipeline.__main__ import main
from pipeline.config import JobConfig, check_pretrained
from pipeline.contract.errors import ConfigError

FILES = ("config.json", "model.safetensors", "tokenizer.json")


def job_with(pretrained, **model):
    return JobConfig.model_validate(
        {
            "name": "small",
            "output_dir": "out",
            "data": {"files": ["rows.csv"]},
            "model": {"pretrained": pretrained, **model},
        }
    )


def message_for(pretrained):
    with pytest.raises(ConfigError) as caught:
        check_pretrained(job_with(pretrained))
    return str(caught.value)


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_a_hub_name_is_answered_with_how_to_get_the_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)

    message = message_for(name)

    assert message.startswith(
        f"model.pretrained: there is no folder {tmp_path / name} (got '{name}')"
    )
    assert "It must be a local folder in Hugging Face format; nothing is downloaded." in message
    assert f"`hf download {name} --local-dir models/bert-base-uncased`" in message
    assert "then set model.pretrained to models/bert-base-uncased." in message


@pytest.mark.parametrize("path", ["./weights", "models/of/mine", "/none/weights"])
def test_a_path_that_is_not_there_is_named_in_full(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)

    message = message_for(path)

    assert f"there is no folder {tmp_path / path} (got '{path}')" in message
    assert "`hf download OWNER/NAME --local-dir models/NAME`" in message


def test_missing_files_are_named_with_all_that_it_takes(tmp_path):
    (tmp_path / "config.json").write_text("{}")

    message = message_for(str(tmp_path))

    assert f"the folder {tmp_path} has no model.safetensors and no tokenizer.json" in message
    assert "It must hold config.json, model.safetensors, tokenizer.json of one BERT" in message


def test_a_whole_folder_and_a_random_start_pass(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text("{}")

    check_pretrained(job_with(str(tmp_path)))
    check_pretrained(job_with(None))


def test_a_model_of_ones_own_needs_only_the_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")

    check_pretrained(job_with(str(tmp_path), factory="my_models.text:build"))


@pytest.mark.parametrize("command", ["prepare", "train", "run"])
def test_the_stages_that_need_a_model_of_ones_own_look_for_it_first(
    tmp_path, monkeypatch, capsys, command
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "job.yaml").write_text("name: a\noutput_dir: out\ndata: {files: none.csv}\n")

    sets = ["--set", "model.factory=not_written_yet:build"]
    assert main([command, "--config", "job.yaml", *sets]) == 2

    message = capsys.readouterr().err
    assert "error: model.factory: there is no module not_written_yet; searched were" in message


@pytest.mark.parametrize("command", ["prepare", "train", "run"])
def test_the_stages_that_need_the_folder_look_at_it_first(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("name: a\noutput_dir: out\ndata: {files: none.csv}\n")

    sets = ["--set", "model.pretrained=bert-base-uncased"]
    assert main([command, "--config", "job.yaml", *sets]) == 2

    assert "error: model.pretrained: there is no folder" in capsys.readouterr().err
