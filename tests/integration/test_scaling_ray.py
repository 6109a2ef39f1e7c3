"""A lane on real Ray Serve that gets a second replica while work waits, and gives it back."""

import threading
from concurrent.futures import ThreadPoolExecutor

import gated_lane
import httpx
import pytest
from bundles import write_tiny_bundle
from gated_lane import GATE, GatedLane
from ray import cloudpickle
from test_lane_ray import runs, wait_for
from test_serve_ray import free_port, replica_pids

pytestmark = pytest.mark.ray

PREDICT = "/v1/predict"
NUM_WAITING = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("scaled") / "bundle").folder.parent


@pytest.fixture(scope="module")
def client(ray_cluster, folder):
    from ray import serve

    import serve_app.app

    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    args = {
        "bundle": str(folder / "bundle"),
        "threads_per_replica": 1,
        "request_timeout_s": 100.0,
        "max_batch_requests": 1,
        "short_replicas": [1, 2],
        "scale_up_delay_s": 1.0,
        "scale_down_delay_s": 1.0,
    }
    # Replicas do not find the tests' folders.
    cloudpickle.register_pickle_by_value(gated_lane)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve_app.app, "Lane", GatedLane)
        application = serve_app.app.build_app(args)
    try:
        serve.run(application, name="scaled", route_prefix="/")
        limits = httpx.Limits(max_connections=NUM_WAITING + 1)
        base_url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base_url, timeout=120.0, limits=limits) as client:
            yield client
    finally:
        serve.shutdown()
        cloudpickle.unregister_pickle_by_value(gated_lane)


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
            wait_for(lambda: len(replica_pids("scaled:ShortLane")) == 2)
            pool.submit(ask_on)
            gate.unlink()
            answers = [one.result().status_code for one in waiting]
            wait_for(lambda: len({pid for pid, _ in runs(folder)}) == 2)
            wait_for(lambda: len(replica_pids("scaled:ShortLane")) == 1)
        finally:
            gate.unlink(missing_ok=True)
            is_over.set()

    assert answers == [200] * NUM_WAITING
    assert set(statuses) == {200}
