"""A server under load loses processes, clients and files, and goes on being right."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from bundles import write_tiny_bundle
from clients import Crowd
from hostile import draw_bodies
from served import serving

from serve_app.load.client import HttpClient
from serve_app.load.target import find_target

pytestmark = pytest.mark.ray

SHORT_LANE, INGRESS = "ray::ServeReplica:textlane:ShortLane", "ray::ServeReplica:textlane:Ingress"
LANES = "ray::ServeReplica:textlane:"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("faults") / "bundle").folder


@pytest.fixture(scope="module")
def server(bundle):
    with serving(bundle, "--set", "short_replicas=2") as server:
        server.wait_for("Ctrl-C stops it.")
        yield server


def memory_kib(pids):
    """Return the memory that processes alone hold."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))
    return total


def test_a_killed_lane_replica_costs_no_request(server):
    with Crowd(server.base_url) as crowd:
        crowd.wait_for_answer(time.monotonic())
        victim = server.pids_of(SHORT_LANE)[0]
        os.kill(victim, signal.SIGKILL)
        killed_s = time.monotonic()
        while len(set(server.pids_of(SHORT_LANE)) - {victim}) < 2:
            assert time.monotonic() - killed_s < 60, "no replica took its place"
            time.sleep(0.2)
        crowd.wait_for_answer(time.monotonic())

    print(f"replaced after {time.monotonic() - killed_s:.1f} s; clients saw {crowd.outcomes()}")
    assert crowd.wrong() == []
    assert set(crowd.outcomes()) == {200}


@pytest.mark.slow
def test_clients_that_leave_at_random_harm_no_others(server):
    with Crowd(server.base_url, num_clients=32, leavers=0.5) as crowd:
        time.sleep(10)

    print(f"{crowd.num_left} left, {len(crowd.seen)} stayed")
    assert crowd.num_left > 200
    assert crowd.wrong() == []
    assert [one for one in crowd.seen if one.outcome != 200] == []
    began_s = time.monotonic()
    with Crowd(server.base_url, num_clients=1, most_requests=50) as after:
        after.wait()
    assert after.outcomes() == {200: 50}
    # Nothing is left behind that a lone client would wait for.
    assert time.monotonic() - began_s < 10


@pytest.mark.drill
def test_memory_stays_level_over_twenty_thousand_texts_of_random_length(server):
    sizes = []
    for _ in range(4):
        with Crowd(server.base_url, num_clients=64, most_requests=5_000) as crowd:
            crowd.wait()
        assert crowd.outcomes() == {200: 5_000}
        sizes.append(memory_kib(server.pids_of(LANES)))

    print(f"memory of the replicas after each 5,000: {[size // 1024 for size in sizes]} MiB")
    assert sizes[-1] - sizes[1] < 8 * 1024


def test_over_long_and_short_texts_at_once_each_get_their_own_answer(server):
    texts = {"good": 200, "good film " * 30: 413, "bad " * 20: 200, "": 400, "x" * 500_000: 413}

    def ask(number):
        text = list(texts)[number % len(texts)]
        with httpx.Client(base_url=server.base_url, timeout=60, trust_env=False) as client:
            return [(text, client.post("/v1/predict", json={"text": text})) for _ in range(10)]

    with ThreadPoolExecutor(32) as pool:
        answers = [pair for pairs in pool.map(ask, range(32)) for pair in pairs]

    for text, response in answers:
        assert response.status_code == texts[text], response.text
        if response.status_code == 200:
            answer = response.json()
            assert answer["label"] == ("negative" if "bad" in text else "positive")
            assert answer["is_truncated"] == (len(text.split()) > 14)
    assert Counter(response.status_code for _, response in answers)[200] >= 120


def test_no_body_is_a_fault_of_the_server_and_good_ones_among_them_are_right(server):
    bodies = draw_bodies(500, seed=1)

    async def send_all():
        client = HttpClient(find_target(f"{server.base_url}/v1/predict", is_mine=False))
        until_s = asyncio.get_running_loop().time() + 60
        replies = []
        for first in range(0, len(bodies), 20):
            some = bodies[first : first + 20]
            replies += await asyncio.gather(*(client.post(body, until_s=until_s) for body in some))
        client.close()
        return replies

    with Crowd(server.base_url, num_clients=4) as crowd:
        replies = asyncio.run(send_all())

    statuses = Counter(reply.status for reply in replies)
    print(f"{dict(statuses)}; {len(crowd.seen)} good ones")
    assert set(statuses) <= {200, 400, 413, 422}
    for reply in replies:
        error = json.loads(reply.body).get("error")
        assert (error is None) == (reply.status == 200)
        assert error is None or {"code", "message", "field", "request_id"} == set(error)
    assert crowd.wrong() == []
    assert set(crowd.outcomes()) == {200}


@pytest.mark.slow
def test_a_bundle_altered_under_a_running_server_is_not_served(server, bundle):
    model = bundle / "model.onnx"
    right = model.read_bytes()
    try:
        model.write_bytes(right[:-1] + b"\0")
        with Crowd(server.base_url, num_clients=4, most_requests=100) as crowd:
            crowd.wait()
        # What runs was loaded before.
        assert crowd.outcomes() == {200: 100}
        victims = server.pids_of(SHORT_LANE)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        # Replicas that start find the altered file; clients wait for none of them in vain.
        url = f"{server.base_url}/v1/predict"
        late = httpx.post(url, json={"text": "good"}, timeout=60)
        assert (late.status_code, late.json()["error"]["code"]) == (503, "not_ready")
        began_s = time.monotonic()
        assert httpx.post(url, json={"text": "good"}, timeout=60).status_code == 503
        assert time.monotonic() - began_s < 1
        ready = httpx.get(f"{server.base_url}/readyz", timeout=60)
        assert ready.status_code == 503
        assert ready.json()["error"]["code"] == "not_ready"
    finally:
        model.write_bytes(right)
    with Crowd(server.base_url, num_clients=4) as crowd:
        crowd.wait_for_answer(time.monotonic(), timeout_s=90)
    assert crowd.wrong() == []
