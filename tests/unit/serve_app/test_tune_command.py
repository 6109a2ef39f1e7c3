"""The tune command, in this process; a model of known cost stands in for a slow one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bundles import write_tiny_bundle
from tuning_samples import Clock, FakeModel

from pipeline.contract.errors import ConfigError
from pipeline.contract.folder import hash_files
from serve_app.__main__ import build_parser, main
from serve_app.tune_command import run_tune
from serve_app.tuning_file import read_tuning, tuning_path

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bundle(tmp_path):
    return write_tiny_bundle(tmp_path / "bundle", with_int8=True)


@pytest.fixture
def model(monkeypatch):
    """A model whose cost is known, on a machine of 2 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return FakeModel(Clock())


def tune(bundle, *arguments):
    return main(["tune", str(bundle.folder), "--seconds", "0.05", *arguments])


def tune_fake(bundle, model, *arguments):
    options = build_parser().parse_args(["tune", str(bundle.folder), *arguments])
    return run_tune(options, open_run=model.open, clock=model.clock)


def test_a_real_bundle_is_measured_and_then_served_as_chosen(bundle, capsys):
    before = hash_files(bundle.folder)

    assert tune(bundle) == 0
    assert main(["predict", "--bundle", str(bundle.folder), "good"]) == 0

    captured = capsys.readouterr()
    tuning = read_tuning(tuning_path(bundle.folder))
    assert tuning.bundle_version == bundle.version
    assert tuning.choice.max_batch_tokens >= 16
    assert "warning" not in captured.err
    assert f"written: {tuning_path(bundle.folder)}" in captured.err
    assert hash_files(bundle.folder) == before


def test_the_fit_finds_the_cost_of_the_model_and_the_table_tells_it(bundle, model, capsys):
    assert tune_fake(bundle, model) == 0

    tuning = read_tuning(tuning_path(bundle.folder))
    assert [fit.threads for fit in tuning.fits] == [1, 2]
    for fit in tuning.fits:
        found = (fit.run_s, fit.token_s, fit.token_seq_s)
        assert found == pytest.approx([part / fit.threads for part in model.cost], rel=1e-4)
    out = capsys.readouterr().out
    assert "ms of a run, 1 thread\n" in out
    assert "off by 0% in the median, 0% at worst" in out
    assert "max_batch_tokens" in out
    assert "the training texts, 3 to 15 tokens" in out


def test_json_is_the_file_and_nothing_else(bundle, model, capsys):
    tune_fake(bundle, model, "--json")

    captured = capsys.readouterr()
    assert captured.out == tuning_path(bundle.folder).read_text()
    assert json.loads(captured.out)["machine"]["usable_cpus"] == 2


def test_lengths_and_out_are_heeded(bundle, model, tmp_path, capsys):
    (tmp_path / "lengths.txt").write_text("4\n" * 9 + "16\n")

    tune_fake(
        bundle,
        model,
        "--lengths",
        str(tmp_path / "lengths.txt"),
        "--out",
        str(tmp_path / "mine.json"),
    )

    tuning = read_tuning(tmp_path / "mine.json")
    assert (tuning.lengths.shortest, tuning.lengths.median, tuning.lengths.longest) == (4, 4, 16)
    assert tuning.choice.short_max_tokens == 4
    assert not tuning_path(bundle.folder).exists()


def test_another_model_file_can_be_measured(bundle):
    assert tune(bundle, "--model", "model_int8.onnx") == 0

    assert read_tuning(tuning_path(bundle.folder)).model == "model_int8.onnx"


def test_shapes_without_time_are_told(bundle, capsys):
    slow = FakeModel(Clock(), token=1.0)

    tune_fake(bundle, slow, "--seconds", "1")

    assert "- no time for" in capsys.readouterr().out
    assert read_tuning(tuning_path(bundle.folder)).skipped


def test_a_fit_that_is_far_off_says_so(bundle, capsys):
    class Busy(FakeModel):
        def seconds(self, threads, batch, seq):
            return super().seconds(threads, batch, seq) * (9.0 if (batch, seq) == (2, 8) else 1.0)

    tune_fake(bundle, Busy(Clock()))

    assert "was the machine busy? Measure again on an idle one." in capsys.readouterr().out


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "soon", "", "1e400"])
def test_seconds_that_cannot_be_are_refused(bundle, capsys, given):
    assert main(["tune", str(bundle.folder), f"--seconds={given}"]) == 2

    assert f"--seconds: must be a number of seconds over 0 (got '{given}')" in one_line(capsys)


def one_line(capsys):
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "Traceback" not in error
    return error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "model_fp16.onnx"], "the bundle has no such model (got 'model_fp16.onnx')"),
        (["--lengths", "none.txt"], "--lengths none.txt: the lengths cannot be read: No such file"),
        (["--shards", "none"], "none/manifest.json: the file is missing"),
        (["--out", "none/t.json"], "none/t.json: its folder is not there. Name a file"),
        (["--out", "bundle"], "a bundle is sealed"),
        (["--out", "bundle/t.json"], "a bundle is sealed; nothing may be written into it"),
        (["--out", "."], "is a folder, not a file"),
    ],
)
def test_a_mistake_is_one_clear_line_and_nothing_is_written(
    bundle, tmp_path, capsys, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)

    assert tune(bundle, *arguments) == 2

    assert message in one_line(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_pipe_is_not_replaced_by_the_tuning(bundle, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")

    assert tune(bundle, "--out", str(tmp_path / "pipe")) == 2

    assert "pipe: is a device or pipe, not a file" in one_line(capsys)
    assert (tmp_path / "pipe").is_fifo()


def test_a_wrong_line_of_lengths_is_named_with_file_line_and_value(bundle, tmp_path, capsys):
    file = tmp_path / "lengths.txt"
    file.write_text("4\nfive\n")

    assert tune(bundle, "--lengths", str(file)) == 2

    assert f"{file}:2: not a number of tokens (got 'five'). Write one" in one_line(capsys)


def test_a_missing_bundle_is_named_with_a_remedy(bundle, tmp_path, capsys):
    assert main(["tune", str(tmp_path / "none")]) == 2
    assert f"{tmp_path / 'none'}: there is no bundle here" in one_line(capsys)

    assert main(["tune", str(bundle.folder.parent)]) == 2
    assert f"Did you mean {bundle.folder}? Set BUNDLE to it." in one_line(capsys)


@pytest.mark.parametrize("arguments", [["tune"], ["tune", "b", "--lengths", "a", "--shards", "b"]])
def test_arguments_that_do_not_go_together_are_refused_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    assert "usage: textlane tune" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing_new_and_the_old_tuning_as_it_was(
    bundle, tmp_path, monkeypatch, capsys
):
    path = tuning_path(bundle.folder)
    path.write_text("old")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("serve_app.session.ScoringSession.run", interrupt)

    assert main(["tune", str(bundle.folder)]) == 130
    assert one_line(capsys) == "stopped; nothing was written"
    assert path.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "bundle.tuning.json"]


def test_debug_shows_the_traceback(bundle):
    with pytest.raises(ConfigError):
        tune(bundle, "--debug", "--out", "/nowhere/t.json")


def test_a_stale_tuning_is_told_by_predict_and_the_text_is_answered(bundle, capsys):
    tune(bundle, "--model", "model_int8.onnx")
    capsys.readouterr()

    status = main(["predict", "--bundle", str(bundle.folder), "good"])

    captured = capsys.readouterr()
    assert status == 0
    assert captured.out.startswith("positive\t")
    assert "warning: the tuning" in captured.err
    assert "model_int8.onnx, here model.onnx. Run `textlane tune" in captured.err


def test_help_teaches_with_examples(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--help"])

    out = capsys.readouterr().out
    assert caught.value.code == 0
    assert "textlane tune outputs/demo_cpu/bundle --seconds 300" in out
    assert "one number of tokens on each line" in out


@pytest.mark.slow
def test_a_fresh_process_tunes_without_ray_torch_pyarrow_or_http(bundle):
    code = (
        "import sys; from serve_app.__main__ import main; "
        f"main(['tune', {str(bundle.folder)!r}, '--seconds', '0.05', '--json']); "
        "print([m for m in ('ray', 'torch', 'fastapi', 'pyarrow') if m in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert result.stdout.splitlines()[-1] == "[]", result.stderr
