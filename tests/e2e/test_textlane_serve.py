"""`textlane serve` from a user's side: it answers, is closed to others, heals and ends cleanly."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from bundles import write_tiny_bundle
from checkout import (
    ROOT,
    environment,
    heed_interrupts,
    home_beside,
    left_running,
    marked_processes,
)

from cluster.listening import read_tcp_table

pytestmark = pytest.mark.ray

TEXT = {"text": "the good film is fun"}
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

    def pids_of(self, sign):
        return [pid for pid, line in marked_processes(self.scratch).items() if sign in line]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("serve") / "bundle").folder


@contextmanager
def serving(bundle, *options):
    scratch = Path(tempfile.mkdtemp(prefix="tl-"))
    log = scratch.with_name(f"{scratch.name}.log")
    ports = ["--port", "0", "--dashboard-port", "0"]
    command = [sys.executable, "-m", "cluster", "serve", "--bundle", bundle, *ports, *options]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(scratch),
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


@pytest.fixture(scope="module")
def server(bundle):
    with serving(bundle) as server:
        server.wait_for("Ctrl-C stops it.")
        yield server


def test_the_printed_request_is_answered(server):
    command = shlex.split(re.search(r"^try: +(curl .*)$", server.said, flags=re.M)[1])
    url = next(word for word in command if word.startswith("http"))

    answer = httpx.post(url, json=json.loads(command[-1])).json()

    assert answer["label"] in {"negative", "positive"}


def addresses_of_this_machine():
    """Return an address other than loopback, if the machine has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing; the kernel picks the interface.
        except OSError:
            return []
        address = probe.getsockname()[0]
    return [] if address.startswith("127.") else [address]


def ports_of_others(server):
    """Return what programs that are not ours listen on; another Ray may use the same numbers."""
    text = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    ours = set()
    for pid in marked_processes(server.scratch):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                ours.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    return {port for inode, (_, port) in read_tcp_table(text).items() if inode not in ours}


def accepts(address, port):
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((address, port)) == 0


def test_every_printed_port_is_open_here_and_none_to_other_machines(server):
    listed = server.said.partition("listening ports:\n")[2].partition("Ctrl-C")[0]
    alone = [int(port) for port in re.findall(r"^  127\.0\.0\.1:(\d+) ", listed, flags=re.M)]
    grouped = re.findall(r"^  127\.0\.0\.1 +\S.*?: ([\d ]+)$", listed, flags=re.M)
    ports = alone + [int(port) for group in grouped for port in group.split()]

    assert len(alone) >= 6, listed
    assert len(ports) >= 18, listed
    assert "warning" not in server.said
    assert sum(accepts("127.0.0.1", port) for port in ports) >= len(ports) - 2  # Idle workers end.
    for address in addresses_of_this_machine():
        reached = [port for port in ports if accepts(address, port)]
        assert set(reached) <= ports_of_others(server)


def test_metrics_and_dashboard_are_where_it_says(server):
    metrics = httpx.get(re.search(r"^metrics: +(\S+)$", server.said, flags=re.M)[1])
    url, token = re.search(r"^dashboard: (\S+) \(token: (\S+)\)$", server.said, flags=re.M).groups()

    with_token = {"Authorization": f"Bearer {Path(token).read_text()}"}
    assert "ray_" in metrics.text
    assert httpx.get(f"{url}/api/serve/applications/").status_code == httpx.codes.UNAUTHORIZED
    answer = httpx.get(f"{url}/api/serve/applications/", headers=with_token, timeout=60)
    assert answer.json()["applications"]["textlane"]["status"] == "RUNNING"


class Load:
    """Clients that ask without pause and note what they see."""

    def __init__(self, base_url, num_clients=8):
        self.outcomes = []  # (time of asking, status or name of the exception)
        self._base_url = base_url
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(num_clients)]

    def _ask(self):
        with httpx.Client(base_url=self._base_url, timeout=30, trust_env=False) as client:
            while not self._is_over.is_set():
                asked = time.monotonic()
                try:
                    response = client.post("/v1/predict", json=TEXT)
                except httpx.TransportError as error:
                    self.outcomes.append((asked, type(error).__name__))
                    time.sleep(0.05)
                    continue
                if response.status_code == httpx.codes.OK:
                    assert response.json()["label"] == "positive"
                else:
                    assert response.json()["error"]["code"] == "not_ready", response.text
                    assert response.headers["retry-after"]
                self.outcomes.append((asked, response.status_code))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def wait_for_answer(self, since, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while not any(asked > since and seen == 200 for asked, seen in list(self.outcomes)):
            assert time.monotonic() < deadline, Counter(seen for _, seen in self.outcomes)
            time.sleep(0.1)


@pytest.mark.parametrize("victim", ["haproxy -db", "ray::ServeReplica:textlane:Ingress"])
def test_a_killed_front_process_is_replaced_and_no_client_gets_a_wrong_answer(server, victim):
    with Load(server.base_url) as load:
        load.wait_for_answer(time.monotonic())
        victims = server.pids_of(victim)
        assert victims
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        load.wait_for_answer(killed + 0.5)
        healed = time.monotonic()
        load.wait_for_answer(healed)

    seen = Counter(outcome for _, outcome in load.outcomes)
    print(f"{victim}: answers again after {healed - killed:.1f} s; clients saw {dict(seen)}")
    refused = {"ConnectError", "ReadError", "WriteError", "RemoteProtocolError"}
    assert set(seen) <= {200, 503} | refused
    after = {outcome for asked, outcome in load.outcomes if asked > healed}
    assert after == {200}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_server_ends_within_seconds_and_leaves_nothing(bundle, number):
    with serving(bundle) as server:
        server.wait_for("Ctrl-C stops it.")
        ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+) ", server.said)]

        status, took_s = server.stop(number)

        assert status == 0, server.said
        assert took_s < 20
        assert server.said.rstrip().endswith("stopped; nothing is left running")
        assert marked_processes(server.scratch) == {}
        assert list(server.scratch.iterdir()) == []
        assert list(home_beside(server.scratch).rglob("*")) == []
        assert not any(accepts("127.0.0.1", port) for port in ports)


@pytest.mark.parametrize("stage", ["starting Ray\n", "starting replicas"])
def test_ctrl_c_while_it_starts_leaves_nothing_either(bundle, stage):
    with serving(bundle) as server:
        server.wait_for(stage)

        status, _ = server.stop(signal.SIGINT)

        assert status == 130, server.said
        assert marked_processes(server.scratch) == {}
        assert list(server.scratch.iterdir()) == []


def test_a_killed_command_takes_its_server_with_it(bundle):
    with serving(bundle) as server:
        server.wait_for("Ctrl-C stops it.")

        server.stop(signal.SIGKILL)

        assert left_running(server.scratch) == {}
        deadline = time.monotonic() + 10
        while list(server.scratch.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert list(server.scratch.iterdir()) == []


def test_it_serves_without_haproxy_too(bundle):
    with serving(bundle, "--no-haproxy") as server:
        server.wait_for("Ctrl-C stops it.")

        assert httpx.post(f"{server.base_url}/v1/predict", json=TEXT).json()["label"] == "positive"
        assert "haproxy" not in server.said
        assert "warning" not in server.said
        assert server.pids_of("/haproxy -db") == []


def test_an_open_front_door_is_the_only_one_and_is_named(bundle):
    with serving(bundle, "--host", "0.0.0.0") as server:
        server.wait_for("Ctrl-C stops it.")

        warnings = [line for line in server.said.splitlines() if line.startswith("warning")]
        port = int(server.base_url.rpartition(":")[2])
        assert len(warnings) == 1
        assert f"0.0.0.0:{port}, haproxy: requests" in warnings[0]
        for address in addresses_of_this_machine():
            assert accepts(address, port)


@pytest.mark.parametrize(
    ("setting", "said"),
    [("foo=1", "--set: foo: unknown setting"), ("request_timeout_s=-1", "--set: request_timeout")],
)
def test_an_impossible_setting_is_told_before_ray_starts(bundle, setting, said):
    with serving(bundle, "--set", setting) as server:
        assert server.process.wait(timeout=60) == 2
        assert said in server.said
        assert "starting Ray" not in server.said
        assert list(server.scratch.iterdir()) == []


def test_when_the_replicas_cannot_start_the_logs_are_kept_and_named(bundle, tmp_path):
    # Ray finds no machine for such a replica and says so; a module that fails does it sooner.
    (tmp_path / "broken_app.py").write_text(
        "from ray import serve\n\n\n@serve.deployment\nclass Broken:\n"
        "    def __init__(self):\n        raise OSError('no luck today')\n\n\n"
        "def build(args):\n    return Broken.bind()\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "http_options: {host: 127.0.0.1, port: 0}\n"
        "applications: [{name: x, import_path: 'broken_app:build', args: {a: 1}}]\n"
    )
    scratch = Path(tempfile.mkdtemp(prefix="tl-"))
    inner = environment(scratch)
    inner["PYTHONPATH"] = f"{ROOT}:{tmp_path}"
    command = [sys.executable, "-m", "cluster", "serve", "--bundle", bundle, "--config", config]
    try:
        result = subprocess.run(
            [*command, "--dashboard-port", "0"],
            cwd=ROOT,
            env=inner,
            capture_output=True,
            text=True,
            timeout=200,
        )

        assert result.returncode == 2, result.stderr
        kept = Path(re.search(r"See the logs in (\S+)\.$", result.stderr, flags=re.M)[1])
        assert "no luck today" in (kept / "serve.log").read_text()
        assert list((kept / "ray").rglob("*.log"))
        assert list(scratch.iterdir()) == [kept]
        assert left_running(scratch) == {}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(home_beside(scratch), ignore_errors=True)
