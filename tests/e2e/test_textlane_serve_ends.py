"""`textlane serve` from start to end: refused, interrupted, killed, stopped; nothing is left."""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import httpx
import pytest
import yaml
from bundles import write_tiny_bundle
from checkout import (
    ROOT,
    environment,
    home_beside,
    left_running,
    marked_processes,
)
from served import accepts, addresses_of_this_machine, grpc_address, serving

from serve_app.rpc.predict_pb2 import PredictRequest
from serve_app.rpc.predictor import PredictorStub

pytestmark = pytest.mark.ray

TEXT = {"text": "the good film is fun"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("serve") / "bundle").folder


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.drill),
    ],
)
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


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["starting Ray\n", "starting replicas"])
def test_ctrl_c_while_it_starts_leaves_nothing_either(bundle, stage):
    with serving(bundle) as server:
        server.wait_for(stage)

        status, _ = server.stop(signal.SIGINT)

        assert status == 130, server.said
        assert marked_processes(server.scratch) == {}
        assert list(server.scratch.iterdir()) == []


@pytest.mark.slow
def test_a_killed_command_takes_its_server_with_it(bundle):
    with serving(bundle) as server:
        server.wait_for("Ctrl-C stops it.")

        server.stop(signal.SIGKILL)

        assert left_running(server.scratch) == {}
        deadline = time.monotonic() + 10
        while list(server.scratch.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert list(server.scratch.iterdir()) == []


@pytest.mark.slow
def test_it_serves_without_haproxy_too_and_no_secret_or_text_is_in_a_log(bundle):
    key = {"X-API-Key": "key-of-a-client"}
    options = ("--no-haproxy", "--grpc-port", "0", "--set", f"api_keys={list(key.values())}")
    # A line of a request is written at once and not with a thousand others.
    with serving(bundle, *options, RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE="1") as server:
        server.wait_for("Ctrl-C stops it.")

        url = f"{server.base_url}/v1/predict"
        refused = httpx.post(url, json=TEXT, headers={"X-API-Key": "key-of-a-stranger"})
        assert refused.status_code == httpx.codes.UNAUTHORIZED
        assert httpx.post(url, json=TEXT, headers=key).json()["label"] == "positive"
        with grpc.insecure_channel(grpc_address(server)) as channel:
            answer = PredictorStub(channel).Predict(
                PredictRequest(**TEXT), timeout=30, metadata=[("x-api-key", key["X-API-Key"])]
            )
        assert answer.answers[0].answer.label == "positive"
        logged, token = server.logged(), (server.folder / "ray_token").read_text()
        assert '"code": "unauthorized"' in logged
        for secret in (token, key["X-API-Key"], "key-of-a-stranger", TEXT["text"]):
            assert secret not in logged
        assert "haproxy" not in server.said
        assert "warning" not in server.said
        assert server.pids_of("/haproxy -db") == []


@pytest.mark.slow
def test_an_open_front_door_is_the_only_one_and_is_named(bundle):
    with serving(bundle, "--host", "0.0.0.0", "--grpc-port", "0") as server:
        server.wait_for("Ctrl-C stops it.")

        warnings = [line for line in server.said.splitlines() if line.startswith("warning")]
        port = int(server.base_url.rpartition(":")[2])
        grpc_port = int(grpc_address(server).rpartition(":")[2])
        assert {warning.partition("can reach ")[2] for warning in warnings} == {
            f"0.0.0.0:{port}, haproxy: requests",
            f"0.0.0.0:{grpc_port}, haproxy: requests by gRPC",
        }
        for address in addresses_of_this_machine():
            assert accepts(address, port)
            assert accepts(address, grpc_port)


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"deployments": [{"name": "ShortLane", "user_config": {"max_batch_rows": 8}}]},
            "error: deployments: ShortLane: user_config: max_batch_rows: unknown setting",
        ),
        (
            {"deployments": [{"name": "ShortLane", "num_replicas": "many"}]},
            "error: the Ray Serve file: applications.0.deployments.0: ",
        ),
        (
            {"deployments": [{"name": "ShortLane", "user_confg": {}}]},
            "applications.0.deployments.0: Ray Serve knows no setting of this name and would pass "
            "over it (got 'user_confg'). Did you mean user_config?",
        ),
        (
            {"route_prefx": "/x"},
            "applications.0: Ray Serve knows no setting of this name and would pass over it "
            "(got 'route_prefx'). Did you mean route_prefix?",
        ),
    ],
    ids=str,
)
def test_a_mistake_in_the_file_is_told_before_ray_starts(bundle, tmp_path, changes, said):
    config = yaml.safe_load((ROOT / "serve_app/config.yaml").read_text())
    config["applications"][0].update(changes)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))

    with serving(bundle, "--config", path) as server:
        assert server.process.wait(timeout=60) == 2
        assert said in server.said
        assert "Traceback" not in server.said
        assert "starting Ray" not in server.said


@pytest.mark.slow
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
