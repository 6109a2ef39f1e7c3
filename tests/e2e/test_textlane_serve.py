"""`textlane serve` from a user's side: it answers, is closed to others, heals and ends cleanly."""

import json
import os
import re
import shlex
import signal
import stat
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from bundles import write_tiny_bundle
from checkout import marked_processes
from monitored import (
    PROMETHEUS,
    light_load,
    prometheus_on,
    reported_training,
    wait_for_data,
)
from served import accepts, addresses_of_this_machine, serving

from cluster.listening import read_tcp_table
from cluster.monitoring.dashboard import ROWS

pytestmark = pytest.mark.ray

TEXT = {"text": "the good film is fun"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("serve") / "bundle").folder


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


def ports_of_others(server):
    """Return what programs that are not ours listen on; another Ray may use the same numbers."""
    text = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    ours = set()
    for pid in marked_processes(server.scratch):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                ours.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    return {port for inode, (_, port) in read_tcp_table(text).items() if inode not in ours}


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


def test_no_other_user_reads_or_changes_its_files(server):
    # Ray opens its own folder to all; it is in ours, which lets nobody through.
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((server.folder / "ray_token").stat().st_mode) == 0o600


@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus: apt-get install prometheus")
def test_prometheus_finds_the_cluster_and_answers_every_query_of_the_dashboard(server, tmp_path):
    queries = [query for row in ROWS for panel in row.panels for query in panel.queries]
    # The program that stands for a training reports every figure, those of a GPU included.
    full = [q.expr for q in queries if q.needs is None or "ray_textlane_train_" in q.expr]
    discovery_file = re.search(r"^prometheus: (\S+) ", server.said, flags=re.M)[1]

    with (
        prometheus_on(discovery_file, tmp_path) as prometheus,
        reported_training(server),
        light_load(server.base_url),
    ):
        empty = wait_for_data(prometheus, full)
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        targets = prometheus.get("targets")["activeTargets"]
        for query in queries:
            prometheus.has_data(query.expr)  # Those that need a GPU, say, are at least valid.

    assert empty == []
    assert {rule["health"] for rule in rules} == {"ok"}
    assert {target["health"] for target in targets} == {"up"}
    assert len(targets) >= 3


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
