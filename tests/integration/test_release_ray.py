"""Releases on real Ray Serve: a candidate beside the stable lanes, its desk lost, its end."""

import os
import signal
import time
from collections import Counter

import httpx
import pytest
from bundles import Variant, write_tiny_bundle
from clients import Meanwhile
from test_serve_ray import free_port, replica_pids, wait_for

pytestmark = pytest.mark.ray

PREDICT = "/v1/predict"
PLAN = {
    "settle_s": 0,
    "steps": [{"weight": 0.3, "dwell_s": 3600}],
    "shadow": {"share": 1.0, "texts_per_s": 100},
}


class Service:
    """The service, its desk, and what its clients saw."""

    def __init__(self, folder):
        self.folder, self.app_name = folder, "rel"
        self.stable = write_tiny_bundle(folder / "stable")
        self.ports = free_port(), free_port()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.ports[0]}", timeout=30.0)
        self.desk = httpx.Client(base_url=f"http://127.0.0.1:{self.ports[1]}", timeout=30.0)

    def version_of(self, bundle):
        return f"{bundle.version}/model.onnx"

    def answer(self, key):
        response = self.client.post(PREDICT, json={"text": "good"}, headers={"X-Release-Key": key})
        assert response.status_code == 200, response.text
        return response.json()["version"]

    def versions(self, num_keys=100):
        return {key: self.answer(key) for key in map(str, range(num_keys))}

    def status(self):
        try:
            return self.desk.get("/v1/release").json()
        except httpx.TransportError:  # Its process was killed; another one comes.
            return {"state": "gone"}

    def act(self, action, **body):
        response = self.desk.post(f"/v1/release/{action}", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def start(self, bundle):
        self.act("start", bundle=str(bundle.folder), plan=PLAN)
        wait_for(lambda: self.status()["state"] == "running")
        wait_for(lambda: self.version_of(bundle) in self.versions(20).values())

    def stable_pids(self):
        lanes = [replica_pids(f"{self.app_name}:{lane}") for lane in ("ShortLane", "LongLane")]
        return [*lanes[0], *lanes[1]]

    def candidate_pids(self):
        return replica_pids(f"{self.app_name}-")


@pytest.fixture(scope="module")
def service(ray_cluster, tmp_path_factory):
    from ray import serve

    from serve_app.app import build_app

    service = Service(tmp_path_factory.mktemp("release"))
    port, admin_port = service.ports
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    try:
        arguments = {
            "bundle": str(service.stable.folder),
            "threads_per_replica": 1,
            "admin_port": admin_port,
        }
        serve.run(build_app(arguments), name=service.app_name, route_prefix="/")
        wait_for(lambda: service.status()["state"] == "none")
        yield service
    finally:
        serve.shutdown()
        service.client.close()
        service.desk.close()


class Caller(Meanwhile):
    """Asks without pause in a thread of its own; keeps what came back."""

    def __init__(self, service):
        self.seen = Counter()
        self._service = service
        super().__init__(self._ask)

    def _ask(self):
        with httpx.Client(base_url=self._service.client.base_url, timeout=30.0) as client:
            while not self._is_over.is_set():
                response = client.post(PREDICT, json={"text": "good"})
                version = response.json().get("version")
                self.seen[response.status_code, version] += 1
                time.sleep(0.01)


def test_a_candidate_answers_its_share_of_the_keys_also_after_its_desk_was_killed(service):
    other = write_tiny_bundle(service.folder / "second", variant=Variant(weight=4.2))
    lanes = service.stable_pids()

    service.start(other)
    before = service.versions()
    (victim,) = replica_pids(f"{service.app_name}:ReleaseDesk")
    os.kill(victim, signal.SIGKILL)
    without_desk = service.versions()
    wait_for(lambda: service.status()["state"] == "running")

    share = Counter(before.values())[service.version_of(other)] / len(before)
    assert 0.15 < share < 0.45
    assert service.status()["weight"] == 0.3
    assert before == without_desk == service.versions()
    assert service.stable_pids() == lanes
    wait_for(lambda: service.status()["shadow"]["num_compared"] > 0)
    assert service.status()["shadow"]["num_compared"] > 0

    # It is taken back, and another candidate comes: the first one never answers again.
    service.act("abort")
    wait_for(lambda: set(service.versions(20).values()) == {service.version_of(service.stable)})
    with Caller(service) as caller:
        wait_for(lambda: not service.candidate_pids())
        third = write_tiny_bundle(service.folder / "third", variant=Variant(weight=4.4))
        service.start(third)
        wait_for(lambda: caller.seen[200, service.version_of(third)] > 3)
    assert {version for _, version in caller.seen} == {
        service.version_of(service.stable),
        service.version_of(third),
    }
    assert {status for status, _ in caller.seen} == {200}
    assert service.stable_pids() == lanes


def test_a_promotion_fails_no_request_and_an_ingress_that_starts_knows_of_it(service):
    third = f"{service.folder}/third"
    with Caller(service) as caller:
        promoted = service.act("promote")
        version = promoted["stable"]["version"]
        wait_for(lambda: set(service.versions(20).values()) == {version})
        time.sleep(5.0)  # The lanes of no version that is asked are ended meanwhile.
    assert promoted["stable"]["bundle"] == third
    assert {status for status, _ in caller.seen} == {200}
    assert service.client.get("/readyz").json()["version"] == version
    assert service.client.get("/v1/model").json()["version"] == version

    (victim,) = replica_pids(f"{service.app_name}:Ingress")
    os.kill(victim, signal.SIGKILL)

    def is_answered():
        try:
            return service.client.post(PREDICT, json={"text": "good"}).status_code == 200
        except httpx.TransportError:  # While no ingress replica is up.
            return False

    wait_for(is_answered)
    assert set(service.versions(20).values()) == {version}
    assert [one["state"] for one in service.desk.get("/v1/release/history").json()["releases"]] == [
        "promoted",
        "aborted",
    ]


def test_a_candidate_that_cannot_start_costs_the_stable_version_nothing(service):
    broken = write_tiny_bundle(service.folder / "broken", variant=Variant(weight=4.6))
    version = service.status()["stable"]["version"]
    model = broken.folder / "model.onnx"
    service.act("start", bundle=str(broken.folder), plan=PLAN)
    model.write_bytes(model.read_bytes()[:-1] + b"\0")

    wait_for(lambda: service.status()["state"] not in ("starting", "running"))

    assert "did not start" in service.status()["reason"]
    assert set(service.versions(20).values()) == {version}
