"""Child processes that never outlive the command that started them."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.contract.errors import CommandError

_INTERRUPT_GRACE_S = 30.0
_TERMINATE_GRACE_S = 5.0
_KILL_GRACE_S = 5.0
_PR_SET_PDEATHSIG = 1


def run_to_end(command: Sequence[str], *, environ: Mapping[str, str]) -> None:
    """Run a command in the foreground; an exception here (Ctrl-C included) ends it first.

    Raises:
        CommandError: it exits with another status than 0.
    """
    with owned_process(command, environ=environ, log=None) as process:
        status = process.wait()
    if status != 0:
        raise CommandError(f"`{' '.join(command)}` ended with status {status}")


@contextmanager
def owned_process(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    log: Path | None,
    grace_s: float | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a process group of its own and end the whole group with the block.

    Args:
        command: program and arguments.
        environ: the whole environment of the process.
        log: file for its output, or None to share ours.
        grace_s: seconds to end by itself when it is asked to; None is 30.
    """
    with open(log or os.devnull, "wb") as output:
        process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=output if log else None,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=True,
            preexec_fn=_begin_child,
        )
        try:
            yield process
        finally:
            _end_group(process, _INTERRUPT_GRACE_S if grace_s is None else grace_s)


_LIBC = ctypes.CDLL(None)  # Not to be loaded between fork and exec.


def _begin_child() -> None:
    # Started in the background of a script we may ignore SIGINT, and children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Killed with SIGKILL we could not end it.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end_group(process: subprocess.Popen[bytes], interrupt_grace_s: float) -> None:
    """Ask with SIGINT, then SIGTERM, then SIGKILL; return when the leader has gone."""
    for number, grace_s in (
        (signal.SIGINT, interrupt_grace_s),
        (signal.SIGTERM, _TERMINATE_GRACE_S),
        (signal.SIGKILL, _KILL_GRACE_S),
    ):
        if process.poll() is not None:
            break
        os.killpg(process.pid, number)
        deadline = time.monotonic() + grace_s
        while process.poll() is None and time.monotonic() < deadline:
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
            except KeyboardInterrupt:
                # An impatient second Ctrl-C moves on to the next, harder signal.
                break
    # Members of the group that outlived their leader; most often there are none.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
