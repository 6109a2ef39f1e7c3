"""Limits that change while a replica runs, through the Ray Serve file's ``user_config``."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from bundles import write_tiny_bundle
from gated_lane import GATE, RUNS
from live_lane import LIMITS
from test_lane_ray import runs, wait_for
from test_serve_ray import free_port

pytestmark = pytest.mark.ray

PREDICT = "/v1/predict"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("live") / "bundle").folder.parent


@pytest.fixture(scope="module")
def deploy(ray_cluster, folder):
    """Deploy as `serve deploy FILE` does, with other ``deployments``."""
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    # Replicas do not find the tests' folders.
    paths = [str(Path(__file__).parent), *sys.path]

    def deploy(*deployments):
        application = {
            "name": "live",
            "import_path": "live_lane:build_app",
            # A lane that scales keeps its policy when the file changes around it.
            "args": {
                "bundle": str(folder / "bundle"),
                "threads_per_replica": 1,
                # What waits behind a run can then be told from what runs beside it.
                "short_concurrent_runs": 1,
                "short_replicas": [1, 2],
            },
            "runtime_env": {"env_vars": {"PYTHONPATH": ":".join(paths)}},
            "deployments": list(deployments),
        }
        schema = ServeDeploySchema(applications=[application])
        _get_global_client().deploy_apps(schema)

    try:
        deploy()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            wait_for(lambda: client.get("/readyz").status_code == 200)
            deploy.client = client
            yield deploy
    finally:
        serve.shutdown()


def taken(folder):
    """Return (process, max_batch_requests) of each time that a lane was told its limits."""
    return [tuple(json.loads(line)) for line in (folder / LIMITS).read_text().splitlines()]


def test_limits_change_without_restart_and_lose_no_request(deploy, folder):
    client = deploy.client
    gate = folder / GATE
    before = len(taken(folder))
    gate.write_text("all")
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(client.post, PREDICT, json={"text": "good"})
        wait_for(lambda: (folder / RUNS).is_file() and runs(folder))
        waiting = [pool.submit(client.post, PREDICT, json={"text": "bad"}) for _ in range(4)]
        deploy({"name": "ShortLane", "user_config": {"max_batch_requests": 2}})
        wait_for(lambda: len(taken(folder)) > before)
        gate.unlink()
        answers = [one.result() for one in [first, *waiting]]

    assert [answer.status_code for answer in answers] == [200] * 5
    (process,) = {pid for pid, _ in runs(folder)}
    assert taken(folder)[before:] == [(process, 2)]
    assert [lengths for _, lengths in runs(folder)] == ["[3]", "[3, 3]", "[3, 3]"]


def test_what_cannot_be_leaves_the_limits_and_what_is_taken_out_restores_them(deploy, folder):
    deploy({"name": "ShortLane", "user_config": {"max_batch_requests": 3}})
    wait_for(lambda: taken(folder)[-1][1] == 3)
    process, _ = taken(folder)[-1]

    before = len(taken(folder))
    deploy({"name": "ShortLane", "user_config": {"max_batch_requests": 0}})
    wait_for(lambda: len(taken(folder)) > before)
    assert taken(folder)[-1] == (process, 3)
    deploy()
    wait_for(lambda: len(taken(folder)) > before + 1)

    assert taken(folder)[-1] == (process, 32)
    assert deploy.client.post(PREDICT, json={"text": "good"}).status_code == 200


def test_an_ingress_takes_other_settings_while_it_runs(deploy):
    long = {"text": "film " * 30}
    assert deploy.client.post(PREDICT, json=long).json()["is_truncated"]

    deploy({"name": "Ingress", "user_config": {"on_too_long": "reject"}})

    wait_for(lambda: deploy.client.post(PREDICT, json=long).status_code == 422)
    assert deploy.client.get("/v1/model").json()["limits"]["refuses_too_long"]
