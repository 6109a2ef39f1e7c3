"""The script for machines with a GPU runs; what it demands of a CPU holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("gpu_train.py")


@pytest.mark.slow
def test_script_for_gpus_runs_on_a_cpu_with_tiny_sizes():
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--quick"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check["ok"] for check in json.loads(done.stdout)["checks"]}
    assert [name for name, ok in checks.items() if ok] == [
        "fp16 loss scale",
        "back-off",
        "exact resume",
    ]
