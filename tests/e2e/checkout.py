"""A copy of the checkout to run the README's commands in, so that nobody's outputs are touched."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from cluster.haproxy import haproxy_files

ROOT = Path(__file__).parents[2]
# The README's jobs, made small: one layer from random weights, a few hundred short rows.
SMALL_JOB = {
    "TEXTLANE_DATA__SAMPLE_ROWS": "240",
    "TEXTLANE_MODEL__PRETRAINED": "null",
    "TEXTLANE_MODEL__HIDDEN_SIZE": "32",
    "TEXTLANE_MODEL__NUM_LAYERS": "1",
    "TEXTLANE_MODEL__MAX_SEQ_LEN": "32",
    "TEXTLANE_MODEL__VOCAB_SIZE": "1000",
    "TEXTLANE_TRAIN__EPOCHS": "1",
    "TEXTLANE_TRAIN__PRECISION": "fp32",
}
MARK = "README_COMMAND_MARK"
_NOT_OURS = ("RAY_", "MAKE", "MFLAGS", "ARGS")


def copy_checkout(target):
    """Copy what git would carry (new files included) and lend the copy this environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".venv").symlink_to(sys.prefix)


def home_beside(scratch):
    """Return a home folder of our own: Ray keeps a token there that changes its commands."""
    home = scratch.with_name(f"{scratch.name}-home")
    home.mkdir(exist_ok=True)
    return home


def environment(scratch):
    """Return an environment whose temporary files, home and marks are ours alone."""
    # `make test ARGS=…` would hand its arguments on to the `make demo` that is tested here.
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_OURS)}
    return {
        **kept,
        **SMALL_JOB,
        "TMPDIR": str(scratch),
        "RAY_TMPDIR": str(scratch),
        **haproxy_files(scratch),
        "RAY_USAGE_STATS_ENABLED": "0",
        MARK: str(scratch),
        "HOME": str(home_beside(scratch)),
    }


def marked_processes(scratch):
    """Return the command lines of running processes that carry our mark."""
    mark = f"{MARK}={scratch}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                    if line:  # A zombie has none.
                        found[int(folder.name)] = line
            except OSError:
                continue  # It ended while we looked, or is not ours to read.
    return found


def left_running(scratch, patience_s=20.0):
    """Return what still runs with our mark after a while of grace."""
    deadline = time.monotonic() + patience_s
    while (left := marked_processes(scratch)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def heed_interrupts():
    """Undo what a background shell or nohup hands down, ignored signals; for ``preexec_fn``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
