"""Training through Ray saves before its machines go and before the number of workers changes."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeline.contract.folder import read_manifest
from pipeline.train.events import read_events

pytestmark = [pytest.mark.ray, pytest.mark.drill]

PROGRAM = Path(__file__).with_name("preempted_training.py")


def test_notice_that_the_node_goes_has_a_checkpoint_written_at_once(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROGRAM.parents[2]),
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "1",  # As on a cluster that is joined.
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.5",
    }

    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.stdout.strip().endswith("stopped"), done.stdout + done.stderr
    folder = tmp_path / "checkpoint"
    (event,) = read_events(folder)
    assert event.kind == "preempted"
    pattern = r"the cluster takes node \w{8} away at \d\d:\d\d:\d\d; step (\d+) is saved"
    (step,) = re.fullmatch(pattern, event.message).groups()
    assert [entry["step"] for entry in read_manifest(folder)["checkpoints"]] == [int(step)]


def test_controller_is_held_before_a_resize_until_the_mark_is_gone(tmp_path):
    from ray.train.v2._internal.execution.controller.state import ResizingState, RunningState

    from pipeline.train.resize_notice import SaveBeforeResize

    mark, seen = tmp_path / "resize", []
    callback = SaveBeforeResize(mark)

    def worker():
        while not mark.exists():
            time.sleep(0.01)
        seen.append("asked")
        mark.unlink()

    thread = threading.Thread(target=worker)
    callback.after_controller_state_update(RunningState(), RunningState())
    thread.start()
    callback.after_controller_state_update(RunningState(), ResizingState(scaling_decision=None))
    thread.join()

    assert seen == ["asked"]
    assert not mark.exists()
