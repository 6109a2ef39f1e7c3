"""`textlane serve` as a process that a test starts, reads and stops."""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkout import (
    ROOT,
    environment,
    heed_interrupts,
    home_beside,
    left_running,
    marked_processes,
)

READY_S = 120


@dataclass
class Running:
    process: subprocess.Popen
    scratch: Path
    log: Path

    @property
    def said(self):
        return self.log.read_text()

    @property
    def base_url(self):
        return re.search(r"ready: (http://\S+) serves", self.said)[1]

    def wait_for(self, sign):
        deadline = time.monotonic() + READY_S
        while sign not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.1)

    def stop(self, number):
        """Send a signal; return the exit status and the seconds until it came."""
        began = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(timeout=60), time.monotonic() - began

    @property
    def folder(self):
        """Where it keeps its files."""
        (folder,) = self.scratch.glob("tl-*")
        return folder

    def logged(self):
        """Return all that it and Ray have written for people to read, token files aside."""
        files = [path for path in self.folder.rglob("logs/**/*") if path.is_file()]
        assert len(files) > 20
        return "\n".join([self.said, *(path.read_text(errors="replace") for path in files)])

    def pids_of(self, sign):
        return [pid for pid, line in marked_processes(self.scratch).items() if sign in line]


@contextmanager
def serving(bundle, *options, **variables):
    scratch = Path(tempfile.mkdtemp(prefix="tl-"))
    log = scratch.with_name(f"{scratch.name}.log")
    ports = ["--port", "0", "--dashboard-port", "0"]
    command = [sys.executable, "-m", "cluster", "serve", "--bundle", bundle, *ports, *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(scratch), **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=heed_interrupts,
        )
    try:
        yield Running(process=process, scratch=scratch, log=log)
    finally:
        process.kill()
        process.wait()
        left = left_running(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(home_beside(scratch), ignore_errors=True)
        log.unlink()
        assert left == {}


def grpc_address(server):
    """Return where a server says that it answers by gRPC."""
    return re.search(r"^grpc: +(\S+), ", server.said, flags=re.M)[1]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def addresses_of_this_machine():
    """Return an address other than loopback, if the machine has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing; the kernel picks the interface.
        except OSError:
            return []
        address = probe.getsockname()[0]
    return [] if address.startswith("127.") else [address]


def accepts(address, port):
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((address, port)) == 0
