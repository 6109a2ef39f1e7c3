"""Children end with the block that owns them."""

import os
import sys
import time

import pytest

from cluster.process import owned_process, run_to_end
from pipeline.contract.errors import CommandError

SLEEP = "import time; time.sleep(600)"
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
IGNORES_INTERRUPT = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SLEEP}"


def is_running(process_group):
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(process_group):
    for _ in range(200):
        if not is_running(process_group):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("code", [SLEEP, WITH_CHILD], ids=["alone", "with a child"])
def test_the_whole_group_ends_when_the_block_is_left_by_an_exception(code, tmp_path):
    with (
        pytest.raises(KeyboardInterrupt),
        owned_process(
            [sys.executable, "-c", code], environ=os.environ, log=tmp_path / "log"
        ) as process,
    ):
        raise KeyboardInterrupt

    assert wait_until_gone(process.pid)


@pytest.mark.slow
def test_a_process_that_ignores_ctrl_c_is_ended_all_the_same(tmp_path):
    code = IGNORES_INTERRUPT.replace("import time;", "import time; print('up', flush=True);")
    log = tmp_path / "log"

    command = [sys.executable, "-c", code]
    with owned_process(command, environ=os.environ, log=log, grace_s=0.2) as process:
        while b"up" not in log.read_bytes():
            time.sleep(0.02)

    assert wait_until_gone(process.pid)


def test_a_failing_command_is_named_with_its_status():
    with pytest.raises(CommandError, match=r"`.* -c raise SystemExit\(7\)` ended with status 7"):
        run_to_end([sys.executable, "-c", "raise SystemExit(7)"], environ=os.environ)


def test_a_good_command_returns():
    run_to_end([sys.executable, "-c", ""], environ=os.environ)
