"""The predict command, in this process."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bundles import FAILING_WORD, MULTI_LABEL, TOKEN, write_tiny_bundle

from pipeline.contract.errors import EmptyTextError
from serve_app.__main__ import main

ROOT = Path(__file__).parents[3]
JOB_FILE = str(ROOT / "job_configs" / "demo_cpu.yaml")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("predict") / "bundle")


def predict(bundle, *arguments):
    return main(["predict", "--bundle", str(bundle.folder), *arguments])


def test_each_argument_is_answered_on_a_line_in_order(bundle, capsys):
    status = predict(bundle, "good film", "bad  film")

    assert status == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines == [["positive", "0.7311", "good film"], ["negative", "0.7311", "bad film"]]


def test_json_lines_carry_every_score(bundle, capsys):
    predict(bundle, "--json", "good")

    answer = json.loads(capsys.readouterr().out)
    assert (answer["text"], answer["label"], answer["num_tokens"]) == ("good", "positive", 3)
    assert set(answer["scores"]) == {"negative", "positive"}


@pytest.mark.slow
def test_lines_of_standard_input_are_texts(bundle, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("good\n\nbad\n" + "fun\n" * 300))

    assert predict(bundle) == 0

    labels = [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert labels == ["positive", "negative"] + ["positive"] * 300


def test_token_task_prints_a_word_a_line(tmp_path, capsys):
    predict(write_tiny_bundle(tmp_path / "bundle", task=TOKEN), "Anna in Oslo")

    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[:2] for line in lines] == [
        ["Anna", "PER"],
        ["in", "O"],
        ["Oslo", "LOC"],
        [""],
    ]


def test_several_labels_and_their_scores_are_joined_by_commas(tmp_path, capsys):
    bundle = write_tiny_bundle(tmp_path / "bundle", task=MULTI_LABEL)

    predict(bundle, "good bad", "the film")
    predict(bundle, "--json", "good")

    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split("\t") for line in lines] == [
        ["negative,positive", "0.6225,0.6225", "good bad"],
        ["-", "-", "the film"],
    ]
    answer = json.loads(last)
    assert [given["label"] for given in answer["labels"]] == ["positive"]
    assert set(answer["scores"]) == {"negative", "positive", "PER"}


@pytest.fixture(scope="module")
def pair_bundle(tmp_path_factory):
    target = tmp_path_factory.mktemp("predict-pairs") / "bundle"
    return write_tiny_bundle(target, takes_pairs=True)


def test_pairs_are_answered_in_order_with_both_texts(pair_bundle, capsys):
    status = predict(pair_bundle, "the film", "bad film", "--pair", "good", "--pair", "is  dull")

    assert status == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["positive", "negative"]
    assert [line[2:] for line in lines] == [["the film", "good"], ["bad film", "is dull"]]


def test_json_lines_carry_both_texts_of_a_pair(pair_bundle, capsys):
    predict(pair_bundle, "--json", "the film", "--pair", "good")

    answer = json.loads(capsys.readouterr().out)
    assert (answer["text"], answer["text_pair"], answer["num_tokens"]) == ("the film", "good", 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good"], "--pair: the model labels pairs of texts; the second text is missing"),
        ([], "--pair: the model labels pairs of texts; the second text is missing"),
        (["good", "bad", "--pair", "fun"], "there are 2 texts and 1 second texts. Give one --pair"),
        (["--pair", "fun"], "there are 0 texts and 1 second texts"),
    ],
)
def test_mistake_with_pairs_is_one_clear_line(pair_bundle, capsys, arguments, message):
    assert predict(pair_bundle, *arguments) == 2

    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "message"),
    [(["fun", "--pair", ""], "--pair of text 2"), (["", "--pair", "fun"], "text 2")],
)
def test_a_bad_pair_among_others_is_named_by_its_number(pair_bundle, capsys, bad, message):
    text, *pair = bad

    assert predict(pair_bundle, "the film", text, "--pair", "good", *pair) == 1

    captured = capsys.readouterr()
    assert captured.out.startswith("positive\t")
    assert len(captured.out.splitlines()) == 1
    assert f"error: {message}: the text is empty" in captured.err


def test_a_pair_for_a_bundle_of_single_texts_is_refused(bundle, capsys):
    assert predict(bundle, "good", "--pair", "fun") == 2

    assert "it takes no pair. Leave --pair out" in capsys.readouterr().err


def test_configuration_file_and_set_are_used(bundle, tmp_path, capsys):
    config = tmp_path / "serve.yaml"
    config.write_text(f"bundle: {bundle.folder}\n")

    status = main(["predict", "--config", str(config), "--set", "max_text_chars=3", "good"])

    assert status == 1
    assert "4 characters are over the limit of 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "model=model_int8.onnx", "good"], "no such model"),
        (["--set", "modell=x", "good"], "Did you mean model?"),
        (["--config", "none.yaml", "good"], "none.yaml"),
        (["--config", JOB_FILE, "good"], "this is the file of a job; --config takes the Ray Serve"),
        (["--config", JOB_FILE, "good"], "the bundle: --bundle outputs/demo_cpu/bundle."),
    ],
)
def test_mistake_is_one_clear_line_and_status_2(bundle, capsys, arguments, message):
    assert predict(bundle, *arguments) == 2

    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("", "text 2: the text is empty"),
        ("\u200b", "text 2: the text is empty"),
        ("x" * 201, "text 2: 201 characters are over the limit of 200"),
        (f"{FAILING_WORD} film", "text 2: the model failed on this text"),
    ],
)
def test_one_bad_text_keeps_no_other_from_its_answer(bundle, capsys, bad, message):
    status = predict(bundle, "good", bad, "bad")

    captured = capsys.readouterr()
    assert status == 1
    assert [line.partition("\t")[0] for line in captured.out.splitlines()] == [
        "positive",
        "negative",
    ]
    assert f"error: {message}" in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_a_bad_line_of_standard_input_is_named_by_its_number(bundle, capsys, monkeypatch):
    lines = ["good"] * 300
    lines[270] = "\u200b"
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))

    assert predict(bundle, "--json") == 1

    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 299
    assert "text 271: the text is empty" in captured.err


def test_a_single_bad_text_has_status_1_too(bundle, capsys):
    assert predict(bundle, "") == 1
    assert "text 1: the text is empty" in capsys.readouterr().err


def test_debug_shows_the_traceback(bundle):
    with pytest.raises(EmptyTextError):
        predict(bundle, "--debug", "")


def test_missing_bundle_is_named(tmp_path, capsys):
    assert main(["predict", "--bundle", str(tmp_path / "none"), "good"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert f"{tmp_path / 'none'}: there is no bundle here" in error
    assert "set --bundle to the folder of yours" in error
    assert "TEXTLANE_SERVE__BUNDLE" not in error


def test_the_folder_around_a_bundle_is_told_from_it(bundle, capsys):
    assert main(["predict", "--bundle", str(bundle.folder.parent), "good"]) == 2

    error = " ".join(capsys.readouterr().err.split())
    assert f"Did you mean {bundle.folder}? Set --bundle to it." in error


def test_help_teaches_with_examples(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["predict", "--help"])

    assert caught.value.code == 0
    assert "textlane predict --bundle" in capsys.readouterr().out


@pytest.mark.slow
def test_a_fresh_process_answers_without_ray_torch_or_http(bundle):
    code = (
        "import sys; from serve_app.__main__ import main; "
        f"main(['predict', '--bundle', {str(bundle.folder)!r}, 'good']); "
        "print([m for m in ('ray', 'torch', 'fastapi', 'pyarrow') if m in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert result.stdout.splitlines()[-1] == "[]", result.stderr


@pytest.mark.slow
def test_bytes_that_are_not_text_are_cleaned_away_under_a_strict_locale(bundle):
    result = subprocess.run(
        [sys.executable, "-m", "serve_app", "predict", "--bundle", str(bundle.folder)],
        cwd=ROOT,
        input=b"good \xff film\n",
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        timeout=60,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(b"positive\t")


def test_a_device_that_onnx_runtime_lacks_is_refused_with_those_it_has(bundle, capsys):
    status = predict(bundle, "good", "--set", "device=cuda", "--set", "lane_num_gpus=1")

    error = " ".join(capsys.readouterr().err.split())
    assert status == 2
    assert "has no CUDAExecutionProvider, only" in error
    assert "CPUExecutionProvider" in error


def test_a_gpu_that_is_not_reserved_is_refused_with_both_settings(bundle, capsys):
    status = predict(bundle, "good", "--set", "device=cuda")

    assert status == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "device cuda and lane_num_gpus 0 do not fit" in error
