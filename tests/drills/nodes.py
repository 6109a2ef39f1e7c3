"""Ray nodes as processes of their own, each with its folder, that a drill starts and kills."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cluster.haproxy import haproxy_files

ROOT = Path(__file__).parents[2]
MARK = "DRILL_NODE"
_NOT_OURS = ("RAY_", "TEXTLANE_", "MAKE", "MFLAGS", "ARGS")
_LOOPBACK = "127.0.0.1"
_START_S = 60.0
_OBJECT_STORE = 100 * 2**20


@dataclass
class Node:
    """One node: `ray start` and all that came of it, known by a mark in their environment."""

    name: str
    folder: Path
    address: str
    host: object
    process: subprocess.Popen
    environ: dict

    def pids_of(self, sign=""):
        """Return the processes of this node whose command line has the sign."""
        return [pid for pid, line in marked(f"{MARK}={self.folder}").items() if sign in line]

    def kill(self):
        """End all processes of the node at once, as a loss of power does."""
        while pids := self.pids_of():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait()

    def command(self, *words):
        """Return a command that runs on this node's host."""
        command = [sys.executable, *words]
        return self.host.command(command) if self.host else command

    def has_started(self):
        assert self.process.poll() is None, self.log()
        return "Ray runtime started" in self.log()

    def log(self):
        return (self.folder / "start.log").read_text()


def marked(mark):
    """Return id and command line of the running processes with a variable in their environment."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                    if line:  # A zombie has none.
                        found[int(folder.name)] = line
            except OSError:
                continue  # It ended while we looked.
    return found


@dataclass
class Cluster:
    """Nodes around one head; those on this machine share its loopback address."""

    folder: Path
    settings: dict
    port: int
    nodes: list = field(default_factory=list)

    @property
    def head(self):
        """The last that was started: a head may be killed and followed by another."""
        return next(node for node in reversed(self.nodes) if node.name == "head")

    @property
    def gcs(self):
        return f"{self.head.address}:{self.port}"

    def add(self, *, cpus, host=None, options=(), is_head=False, **settings):
        """Start a node and wait until it says that it runs."""
        name = "head" if is_head else f"node{len(self.nodes)}"
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        environ = self.environ(folder, **settings)
        # Ray would replace 127.0.0.1 by the machine's own address, and these it takes as they are.
        address = host.address if host else f"127.0.0.{84 + len(self.nodes)}"
        where = ["--head", f"--port={self.port}", f"--ray-client-server-port={free_port()}"]
        if not is_head:
            where = [f"--address={self.gcs}"]
        else:
            where += ["--include-dashboard=false"]
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *where]
        words += [f"--node-ip-address={address}", f"--num-cpus={cpus}", f"--temp-dir={folder}"]
        words += [f"--object-store-memory={_OBJECT_STORE}", "--metrics-export-port=0"]
        words += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
        words += ["--runtime-env-agent-port=0", "--dashboard-agent-grpc-port=0", *options]
        with (folder / "start.log").open("wb") as log:
            process = subprocess.Popen(
                host.command(words) if host else words,
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        node = Node(
            name=name, folder=folder, address=address, host=host, process=process, environ=environ
        )
        self.nodes.append(node)
        wait_for(node.has_started, within_s=_START_S, why=node.log)
        return node

    def environ(self, folder, **settings):
        """Return the environment of a node, or of a driver beside it."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_NOT_OURS)}
        token = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
        home = folder / "home"
        home.mkdir(exist_ok=True)
        own = {"TMPDIR": str(folder), "HOME": str(home), MARK: str(folder)}
        return {
            **kept,
            **token,
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
            **haproxy_files(folder),
            **self.settings,
            **settings,
            **own,
        }


@contextmanager
def cluster(**settings):
    """Yield a cluster without nodes, with these variables on each; leave nothing of it."""
    folder = Path(tempfile.mkdtemp(prefix="td-", dir=os.environ.get("RAY_TMPDIR", "/tmp")))
    found = Cluster(folder=folder, settings=settings, port=free_port())
    try:
        yield found
    finally:
        for node in found.nodes:
            node.kill()
        shutil.rmtree(folder)
        left = [line for node in found.nodes for line in marked(f"{MARK}={node.folder}").values()]
        assert left == []


def free_port():
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return probe.getsockname()[1]


def wait_for(is_there, *, within_s, why=lambda: ""):
    """Return what was waited for, as soon as it is true."""
    deadline = time.monotonic() + within_s
    while not (found := is_there()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)
    return found
