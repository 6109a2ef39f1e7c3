"""A lane on real Ray Serve that gets a second replica while work waits, and gives it back."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from bundles import write_tiny_bundle
from gated_app import gated_client
from gated_lane import GATE
from test_lane_ray import runs, wait_for
from test_serve_ray import replica_pids

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PREDICT = "/v1/predict"
NUM_WAITING = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("scaled") / "bundle").folder.parent


@pytest.fixture(scope="module")
def client(ray_cluster, folder):
    settings = {
        "request_timeout_s": 100.0,
        "max_batch_requests": 1,
        "short_replicas": [1, 2],
        "scale_up_delay_s": 1.0,
        "scale_down_delay_s": 1.0,
    }
    with gated_client(folder, num_connections=NUM_WAITING + 1, **settings) as client:
        yield client


def test_a_lane_grows_while_work_waits_and_shrinks_after_and_loses_no_request(client, folder):
    gate, is_over, statuses = folder / GATE, threading.Event(), []
    gate.write_text("all")

    def ask_on():
        while not is_over.is_set():
            statuses.append(client.post(PREDICT, json={"text": "bad"}).status_code)

    with ThreadPoolExecutor(NUM_WAITING + 1) as pool:
        waiting = [
            pool.submit(client.post, PREDICT, json={"text": "good"}) for _ in range(NUM_WAITING)
        ]
        try:
            wait_for(lambda: len(replica_pids("gated:ShortLane")) == 2)
            pool.submit(ask_on)
            gate.unlink()
            answers = [one.result().status_code for one in waiting]
            wait_for(lambda: len({pid for pid, _ in runs(folder)}) == 2)
            wait_for(lambda: len(replica_pids("gated:ShortLane")) == 1)
        finally:
            gate.unlink(missing_ok=True)
            is_over.set()

    assert answers == [200] * NUM_WAITING
    assert set(statuses) == {200}
