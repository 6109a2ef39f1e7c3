"""One command at a time writes to an output folder, and only to a usable one."""

import subprocess
import sys

import pytest

from pipeline import output_claim
from pipeline.__main__ import main
from pipeline.contract.errors import ConfigError, FolderError
from pipeline.output_claim import claim_output

STAGES = ["prepare", "train", "evaluate", "export", "run"]
HOLD = """\
import sys, time
from pipeline.output_claim import claim_output
with claim_output(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def job_in(tmp_path, output_dir):
    path = tmp_path / "job.yaml"
    path.write_text(f"name: small\noutput_dir: {output_dir}\ndata: {{files: [none.csv]}}\n")
    return str(path)


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("command", STAGES)
@pytest.mark.parametrize("output_dir", ["rows.csv", "rows.csv/below", "/proc/nothing"])
def test_every_stage_first_refuses_a_folder_it_cannot_write_to(
    tmp_path, monkeypatch, capsys, command, output_dir
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("text,label\n")

    status = main([command, "--config", job_in(tmp_path, output_dir)])

    error = " ".join(capsys.readouterr().err.split())
    assert status == 2
    assert f"output_dir: nothing can be written to {tmp_path / output_dir}: " in error
    assert f"(got '{output_dir}'). Set output_dir to a folder" in error


@pytest.mark.parametrize(
    ("command", "name"),
    [*zip(STAGES, ["shards", "checkpoint", "report", "bundle"], strict=False), ("run", "bundle")],
)
def test_a_file_in_the_place_of_a_stages_folder_is_refused_before_any_work(
    tmp_path, capsys, command, name
):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("not yours")

    status = main([command, "--config", job_in(tmp_path, tmp_path / "out")])

    error = " ".join(capsys.readouterr().err.split())
    assert status == 2
    assert error == (
        f"error: {tmp_path / 'out' / name}: the output is a file, not a folder. Move it away or "
        "set another output_dir."
    )


def test_a_folder_without_permission_or_room_is_refused_with_the_cause(tmp_path, monkeypatch):
    def refuse(**_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(output_claim.tempfile, "TemporaryFile", refuse)

    with pytest.raises(ConfigError, match=r"^output_dir: nothing can .*: Permission denied \(got"):
        claim_output(str(tmp_path)).__enter__()


@pytest.mark.slow
@pytest.mark.parametrize("command", STAGES)
def test_a_second_command_in_the_same_folder_is_refused(tmp_path, holder, capsys, command):
    status = main([command, "--config", job_in(tmp_path, tmp_path / "out")])

    error = " ".join(capsys.readouterr().err.split())
    assert status == 2
    assert f"{tmp_path / 'out'}: another textlane command is at work" in error
    assert f"process {holder.pid} on " in error
    assert f"Wait for it, stop it (`kill {holder.pid}`), or set another output_dir" in error


@pytest.mark.slow
def test_a_killed_command_holds_the_folder_no_longer(tmp_path, holder):
    holder.kill()
    holder.wait()

    with claim_output(str(tmp_path / "out")):
        assert (tmp_path / "out" / ".lock").exists()


@pytest.mark.slow
def test_what_the_second_command_does_leaves_the_first_one_its_lock(tmp_path, holder):
    for _ in range(2):
        with pytest.raises(FolderError, match="at work in this folder"):
            claim_output(str(tmp_path / "out")).__enter__()


def test_a_folder_that_got_nothing_is_not_left_behind(tmp_path, capsys):
    main(["prepare", "--config", job_in(tmp_path, tmp_path / "out")])

    assert not (tmp_path / "out").exists()


def test_a_folder_with_results_is_left_with_them_alone(tmp_path):
    with claim_output(str(tmp_path / "out")):
        (tmp_path / "out" / "shards").mkdir()

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["shards"]


def test_programs_that_a_stage_starts_do_not_hold_the_folder(tmp_path):
    code = "import time; print('up', flush=True); time.sleep(600)"
    with claim_output(str(tmp_path / "out")):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        child.stdout.readline()
    try:
        with claim_output(str(tmp_path / "out")):
            pass
    finally:
        child.kill()
        child.communicate()


def test_what_a_killed_command_left_is_removed_by_the_next(tmp_path):
    for name in ("bundle", "shards", ".bundle.partial-a", ".bundle.partial-a.old", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / ".sensitivity-b").mkdir()
    (tmp_path / ".sensitivity-b" / "plain.onnx").write_text("half")
    (tmp_path / ".sensitivity.json.c").write_text("{")
    (tmp_path / ".own").write_text("mine")

    with claim_output(str(tmp_path)):
        pass

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".own", "bundle", "own", "shards"]


def test_the_only_bundle_that_a_kill_left_is_kept(tmp_path):
    (tmp_path / ".bundle.partial-a.old").mkdir()

    with claim_output(str(tmp_path)):
        pass

    assert [path.name for path in tmp_path.iterdir()] == [".bundle.partial-a.old"]
