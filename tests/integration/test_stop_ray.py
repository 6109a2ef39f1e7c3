"""SIGTERM while a stage works on Ray ends it as Ctrl-C does, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
JOB = """\
name: stopped
output_dir: out
data: {files: [rows.csv], sample_rows: 3000}
model: {hidden_size: 32, num_layers: 1, max_seq_len: 16, vocab_size: 500}
train: {epochs: 1000, checkpoint_every_steps: 5}
ray: {num_cpus: 2, threads_per_worker: 1}
"""


@pytest.fixture
def scratch():
    # Sockets live below it and their paths may have 107 bytes only: pytest's are too long.
    folder = Path(tempfile.mkdtemp(prefix="tl-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def write_job(folder, *, rows):
    (folder / "job.yaml").write_text(JOB)
    lines = (f"film {number} was {'so ' * (number % 9)}fine,{number % 3}" for number in range(rows))
    (folder / "rows.csv").write_text("text,label\n" + "\n".join(lines) + "\n")


def start(command, folder, scratch):
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", command, "--config", "job.yaml"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(is_there, process):
    deadline = time.monotonic() + 120
    while not is_there():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, "the awaited moment never came"
        time.sleep(0.02)


def processes_in(session):
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # It ended while we looked.
        if int(of) == session and state != "Z":
            found[int(folder.name)] = line
    return found


def left_in(session, patience_s=20.0):
    deadline = time.monotonic() + patience_s
    while (left := processes_in(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def end_all(process):
    for pid in processes_in(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


RAY_STARTS = "tl-*/r/session_*/logs/worker-*.out"
RAY_DATA_WORKS = "tl-*/r/session_*/logs/ray-data/*.log"
RAY_TRAIN_WORKS = "checkpoint/*.pt"


@pytest.mark.parametrize(
    ("command", "sign", "to"),
    [
        ("prepare", RAY_STARTS, "its whole group"),
        pytest.param("prepare", RAY_DATA_WORKS, "the command", marks=pytest.mark.drill),
        pytest.param("train", RAY_TRAIN_WORKS, "its whole group", marks=pytest.mark.drill),
    ],
)
def test_sigterm_stops_a_stage_on_ray_as_ctrl_c_does(tmp_path, scratch, command, sign, to):
    write_job(tmp_path, rows=60_000 if command == "prepare" else 600)
    if command == "train":
        prepare = start("prepare", tmp_path, scratch)
        assert prepare.communicate(timeout=120)
        assert prepare.returncode == 0
    process = start(command, tmp_path, scratch)
    try:
        wait_for(lambda: any(scratch.glob(sign)) or any(tmp_path.glob(f"out/{sign}")), process)
        process.terminate()
        if to == "its whole group":  # `timeout` signals the command first and then the group.
            os.killpg(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=60)

        assert process.returncode == 130, output
        assert output.strip().splitlines()[-1].startswith("stopped;")
        assert "SIGTERM received" not in output
        assert list(scratch.glob("tl-*")) == []
        assert left_in(process.pid) == {}
    finally:
        end_all(process)
