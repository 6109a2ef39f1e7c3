"""Ctrl-C at any stage of the demo leaves no process, no port and no temporary folder."""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from checkout import (
    copy_checkout,
    environment,
    heed_interrupts,
    home_beside,
    left_running,
    marked_processes,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.parametrize(
    ("sign", "number"),
    [("raylet", signal.SIGINT), ("ray::", signal.SIGTERM), ("ray::", signal.SIGHUP)],
    ids=["Ctrl-C as Ray starts", "SIGTERM while Ray works", "the terminal is closed"],
)
def test_a_stopped_demo_leaves_nothing_behind(tmp_path, sign, number):
    copy_checkout(tmp_path)
    scratch = Path(tempfile.mkdtemp(prefix="tl-"))
    command = [sys.executable, "-m", "cluster", "demo", "--config", "job_configs/demo_cpu.yaml"]
    demo = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(scratch),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_interrupts,
    )
    try:
        deadline = time.monotonic() + 60
        while not any(sign in line for line in marked_processes(scratch).values()):
            assert demo.poll() is None, demo.stdout.read()
            assert time.monotonic() < deadline, "the awaited process never came"
            time.sleep(0.05)
        demo.send_signal(number)
        output, _ = demo.communicate(timeout=60)

        assert demo.returncode == 130, output
        assert left_running(scratch) == {}
        assert list(scratch.iterdir()) == []
        assert not list((tmp_path / "outputs").rglob("*.partial-*"))
    finally:
        demo.kill()
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(home_beside(scratch), ignore_errors=True)
