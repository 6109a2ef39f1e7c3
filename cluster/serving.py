"""A server of this machine from start to end: `textlane serve` and the demo serve with it."""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import yaml

from cluster.listening import ListeningPort, descendants, listening_ports, running_parents
from cluster.process import owned_process
from cluster.serve_config import ServingPlan, in_words_of_the_command
from cluster.serving_env import ServingPlace, ray_folder, serving_environ
from cluster.serving_state import read_state
from cluster.traffic import is_ready
from pipeline.contract.errors import CommandError

_START_TIMEOUT_S = 300.0
_STOP_GRACE_S = 15.0
_POLL_S = 0.2
_LONGEST_FOLDER = 33
"""HAProxy takes 97 bytes for a socket's path: ours, 56 of Ray's node id, and 8 for its name."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that answers."""

    plan: ServingPlan
    process: "Popen[bytes]"
    folder: Path
    """Ours, with Ray's session and its logs; gone when the server has ended."""
    environ: Mapping[str, str]
    """What Ray's processes were started with."""
    metrics_port: int | None

    def listening(self) -> list[ListeningPort]:
        """Return what its processes listen on now."""
        return listening_ports(self.process.pid)


@contextmanager
def serving(
    plan: ServingPlan,
    *,
    environ: Mapping[str, str],
    log: Path | None = None,
    on_stage: Callable[[str], None] = lambda _stage: None,
) -> Iterator[Server]:
    """Start a server, hand it over when it is ready and end all of it with the block.

    Args:
        plan: what to serve where.
        environ: the user's environment; the server's is made from it.
        log: file for what the server prints; None keeps it in its folder.
        on_stage: is told what is awaited, each time that it is something else.

    Raises:
        CommandError: it did not start; says why and where the logs are.
    """
    folder = _make_folder()
    output = log or folder / "serve.log"
    try:
        place = ServingPlace(
            folder=folder,
            with_haproxy=plan.with_haproxy,
            host=plan.host,
            grpc_port=plan.grpc_port,
        )
        inner = {**serving_environ(environ, place), **plan.settings}
        (folder / "serve.yaml").write_text(yaml.safe_dump(plan.config, sort_keys=False))
        command = [sys.executable, "-m", "cluster.local", "--folder", str(folder)]
        command += ["--dashboard-port", str(plan.dashboard_port)]
        with (
            _orphans_are_ended(),
            owned_process(command, environ=inner, log=output, grace_s=_STOP_GRACE_S) as process,
        ):
            _wait_until_ready(plan, process, folder, on_stage)
            yield Server(
                plan=plan,
                process=process,
                folder=folder,
                environ=inner,
                metrics_port=read_state(folder).metrics_port,
            )
            if process.poll() is not None:
                raise _Unexpected("the server ended by itself")
    except _Unexpected as error:
        raise CommandError(
            in_words_of_the_command(str(error), plan.settings),
            remedy=f"See the logs in {_keep_logs(folder, output)}.",
        ) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Unexpected(Exception):
    """The server failed in a way that its logs must explain."""


def _make_folder() -> Path:
    # mkdtemp lets nobody else in: HAProxy's administration socket is open to all who reach it.
    folder = tempfile.mkdtemp(prefix="tl-")
    if len(os.fsencode(folder)) <= _LONGEST_FOLDER:
        return Path(folder)
    os.rmdir(folder)
    return Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))


def _wait_until_ready(
    plan: ServingPlan, process: "Popen[bytes]", folder: Path, on_stage: Callable[[str], None]
) -> None:
    shown = None
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        state = read_state(folder)
        if state.error and state.is_users:
            raise CommandError(in_words_of_the_command(state.error, plan.settings))
        if state.error or process.poll() is not None:
            raise _Unexpected(f"the server did not start: {_last_line(state.error or '')}")
        stage = "waiting for the first answer" if state.is_running else state.stage
        if stage != shown:
            on_stage(stage)
            shown = stage
        if state.is_running and is_ready(plan.base_url):
            return
        time.sleep(_POLL_S)
    raise _Unexpected(f"the server was not ready within {_START_TIMEOUT_S:.0f} s")


def _last_line(text: str) -> str:
    """Return the last line that says something; a traceback's cause stands there."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"


def _keep_logs(folder: Path, log: Path) -> Path:
    """Copy the logs to a folder that stays and return it."""
    kept = Path(tempfile.mkdtemp(prefix="textlane-serve-logs-"))
    for source in (log, folder / "serve.yaml"):
        if source.is_file():
            shutil.copy2(source, kept / source.name)
    logs = ray_folder(folder) / "session_latest" / "logs"
    if logs.is_dir():
        shutil.copytree(logs, kept / "ray", ignore_dangling_symlinks=True)
    return kept


@contextmanager
def _orphans_are_ended() -> Iterator[None]:
    """End with the block what was started in it and lost its parent.

    Ray's workers and HAProxy are in process groups of their own; where one in between is killed,
    they would stay, and keep the port. As "subreaper" this process becomes their parent then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = descendants(os.getpid(), running_parents())
    try:
        yield
    finally:
        while left := descendants(os.getpid(), running_parents()) - before:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with suppress(ChildProcessError):  # Its parent, killed as well, was another.
                    os.waitpid(pid, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
