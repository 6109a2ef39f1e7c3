"""SIGKILL in the middle of prepare leaves nothing that looks finished, and a rerun is clean."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from checkout import ROOT, environment, home_beside, left_running

pytestmark = [pytest.mark.ray, pytest.mark.slow]

JOB = """
name: killed
output_dir: {output}
data: {{files: [{file}]}}
model: {{max_seq_len: 64, vocab_size: 500}}
ray: {{num_cpus: 1}}
"""


def start(job, scratch):
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", "prepare", "--config", str(job)],
        cwd=ROOT,
        env={**environment(scratch), "TEXTLANE_DATA__SAMPLE_ROWS": "null", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(pattern, folder, process, patience_s=120.0):
    deadline = time.monotonic() + patience_s
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, f"{pattern} never came"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "file", ["texts.arrow", pytest.param("tokens.arrow", marks=pytest.mark.drill)]
)
def test_killed_prepare_leaves_no_shards_and_a_rerun_is_clean(tmp_path, file):
    output = tmp_path / "out"
    rows = [f"film {i} was {'so very ' * (i % 60)}fine,{i % 3}" for i in range(8000)]
    (tmp_path / "a.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(output=output, file=tmp_path / "a.csv"))
    scratch = Path(tempfile.mkdtemp(prefix="tl-"))
    prepare = start(job, scratch)
    try:
        wait_for(f".shards.partial-*/.spool/{file}", output, prepare)
        prepare.send_signal(signal.SIGKILL)
        prepare.communicate(timeout=60)

        assert not (output / "shards").exists()

        prepare = start(job, scratch)
        shown, _ = prepare.communicate(timeout=180)

        assert prepare.returncode == 0, shown
        assert [path.name for path in output.iterdir()] == ["shards"]
        assert not (output / "shards" / ".spool").exists()
    finally:
        prepare.kill()
        for pid in left_running(scratch, patience_s=5.0):  # Ray's, of the run that was killed.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(home_beside(scratch), ignore_errors=True)
