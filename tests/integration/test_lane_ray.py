"""A lane on real Ray Serve whose model run takes as long as the test says."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from bundles import write_tiny_bundle
from gated_app import gated_client
from gated_lane import GATE, RUNS

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PREDICT = "/v1/predict"
TIMEOUT_S = 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("gated") / "bundle").folder.parent


@pytest.fixture(scope="module")
def client(ray_cluster, folder):
    settings = {"request_timeout_s": TIMEOUT_S, "batch_wait_timeout_ms": 10, "coalesce_ms": 100.0}
    with gated_client(folder, **settings) as client:
        yield client


@pytest.fixture
def gate(folder):
    gate = folder / GATE
    (folder / RUNS).write_text("")
    yield gate
    gate.unlink(missing_ok=True)


def runs(folder):
    """Return the process and the lengths of each run so far."""
    lines = (folder / RUNS).read_text().splitlines()
    return [(int(pid), lengths) for pid, _, lengths in (line.partition(" ") for line in lines)]


def wait_for(is_there, *, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not is_there():
        assert time.monotonic() < deadline, "the awaited moment never came"
        time.sleep(0.05)


def test_a_client_that_left_is_dropped_before_the_session_runs(client, folder, gate):
    gate.write_text("all")
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(client.post, PREDICT, json={"text": "good"})
        wait_for(lambda: runs(folder))
        stays = pool.submit(client.post, PREDICT, json={"text": "good film"})
        time.sleep(0.1)
        with pytest.raises(httpx.ReadTimeout):
            client.post(PREDICT, json={"text": "the good film is fun"}, timeout=0.5)
        time.sleep(0.5)
        gate.unlink()

        assert [first.result().status_code, stays.result().status_code] == [200, 200]
    assert [lengths for _, lengths in runs(folder)] == ["[3]", "[4]"]


def test_a_client_that_left_is_dropped_from_a_call_that_others_wait_for(client, folder, gate):
    gate.write_text("all")
    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(client.post, PREDICT, json={"text": "good"})]
        wait_for(lambda: len(runs(folder)) == 1)
        running.append(pool.submit(client.post, PREDICT, json={"text": "good"}))
        wait_for(lambda: len(runs(folder)) == 2)
        # Within the time in which texts are collected for a call.
        stays = pool.submit(client.post, PREDICT, json={"text": "good film"})
        left = pool.submit(client.post, PREDICT, json={"text": "the good film is fun"}, timeout=0.5)
        with pytest.raises(httpx.ReadTimeout):
            left.result()
        time.sleep(0.5)
        gate.unlink()

        assert [one.result().status_code for one in (*running, stays)] == [200, 200, 200]
    assert [lengths for _, lengths in runs(folder)] == ["[3]", "[3]", "[4]"]


def test_a_replica_whose_model_run_hangs_is_replaced(client, folder, gate):
    assert client.post(PREDICT, json={"text": "good"}).status_code == 200
    ((hung, _),) = runs(folder)
    gate.write_text(str(hung))

    late = client.post(PREDICT, json={"text": "good"})
    wait_for(lambda: client.post(PREDICT, json={"text": "good"}).status_code == 200)

    assert late.status_code == 504
    assert runs(folder)[-1][0] != hung
