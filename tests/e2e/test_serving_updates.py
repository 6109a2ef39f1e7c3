"""A server that also answers by gRPC, changes its settings and shrinks while clients ask."""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import httpx
import pytest
import yaml
from bundles import write_tiny_bundle
from checkout import ROOT, environment
from clients import Crowd
from served import grpc_address, serving

from serve_app.rpc.predict_pb2 import PredictRequest
from serve_app.rpc.predictor import PREDICT_METHOD, PredictorStub

pytestmark = pytest.mark.ray

EXAMPLE = re.search(r"```python\n(.*?)```", (ROOT / "serve_app/README.md").read_text(), flags=re.S)[
    1
]
SHORT_LANE = "ray::ServeReplica:textlane:ShortLane"
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("updates") / "bundle").folder


@pytest.fixture(scope="module")
def server(bundle):
    with serving(bundle, "--grpc-port", "0") as server:
        server.wait_for("Ctrl-C stops it.")
        yield server


@pytest.fixture(scope="module")
def address(server):
    return grpc_address(server)


@pytest.fixture(scope="module")
def predictor(address):
    options = [("grpc.max_send_message_length", 64 * 2**20)]
    with grpc.insecure_channel(address, options=options) as channel:
        grpc.channel_ready_future(channel).result(30)
        yield PredictorStub(channel)


def test_the_readmes_client_prints_an_answer_and_an_error(server, address, predictor):
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE.replace("127.0.0.1:9000", address)],
        cwd=ROOT,
        env=environment(server.scratch),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    label, refusal, message = done.stdout.splitlines()
    assert label in {"negative", "positive"}
    assert refusal == "INVALID_ARGUMENT empty_text text order-66"
    assert message.startswith("text: the text is empty")


@pytest.mark.parametrize(
    ("message", "options", "code", "ours"),
    [
        (PredictRequest(text="a" * 201), {}, Code.INVALID_ARGUMENT, "text_too_long"),
        (PredictRequest(text="boom"), {}, Code.INTERNAL, "inference_failed"),
        (PredictRequest(text="a" * 5_000_000), {}, Code.INVALID_ARGUMENT, "body_too_large"),
        (PredictRequest(text="a" * 20_000_000), {}, Code.RESOURCE_EXHAUSTED, None),
        (PredictRequest(text="good"), {"timeout": 0.0005}, Code.DEADLINE_EXCEEDED, None),
        (
            PredictRequest(text="good"),
            {"metadata": [("request_id", "a" * 129)]},
            Code.INVALID_ARGUMENT,
            "invalid_request",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_errors_come_through_every_proxy_as_they_were_made(predictor, message, options, code, ours):
    with pytest.raises(grpc.RpcError) as caught:
        predictor.Predict(message, **options)

    assert caught.value.code() is code
    assert dict(caught.value.trailing_metadata()).get("error-code") == ours


def test_bytes_that_are_no_message_are_the_clients_mistake(address):
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(PREDICT_METHOD)(b"\x0a\x02\xff\xfe")

    assert caught.value.code() is Code.INVALID_ARGUMENT


class RpcClient(threading.Thread):
    """Asks by gRPC without pause until the block ends."""

    def __init__(self, predictor):
        super().__init__()
        self.labels, self.errors = [], []
        self._predictor = predictor
        self._is_over = threading.Event()

    def run(self):
        while not self._is_over.is_set():
            try:
                answer = self._predictor.Predict(PredictRequest(text="the good film"), timeout=60)
                self.labels.append(answer.answers[0].answer.label)
            except grpc.RpcError as error:
                self.errors.append((error.code(), error.details()))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_error):
        self._is_over.set()
        self.join()


class Deployer:
    """Deploys the server's file anew with changes, as `serve deploy` does."""

    def __init__(self, server):
        logs = Path(re.search(r"^logs: +(\S+)$", server.said, flags=re.M)[1])
        self._config = yaml.safe_load((logs.parents[2] / "serve.yaml").read_text())
        url, token = re.search(
            r"^dashboard: (\S+) \(token: (\S+)\)$", server.said, flags=re.M
        ).groups()
        self._url = f"{url}/api/serve/applications/"
        self._headers = {"Authorization": f"Bearer {Path(token).read_text()}"}

    def deploy(self, *deployments, **arguments):
        application = self._config["applications"][0]
        application["args"].update(arguments)
        application["deployments"] = list(deployments)
        answer = httpx.put(self._url, json=self._config, headers=self._headers, timeout=60)
        assert answer.status_code == httpx.codes.OK, answer.text


def wait_until(condition, server, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert server.process.poll() is None
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)


def test_a_rolling_update_and_a_scale_down_under_load_lose_no_request(server, predictor):
    deployer = Deployer(server)

    def limit():
        answer = httpx.get(f"{server.base_url}/v1/model", timeout=60)
        return answer.json()["limits"]["max_texts_per_request"]

    before = set(server.pids_of("ray::ServeReplica:textlane:"))
    with Crowd(server.base_url, num_clients=8) as crowd, RpcClient(predictor) as by_grpc:
        crowd.wait_for_answer(time.monotonic())
        began_s = time.monotonic()
        deployer.deploy({"name": "ShortLane", "num_replicas": 2}, max_texts_per_request=7)
        wait_until(lambda: not before & set(server.pids_of("ray::ServeReplica:")), server)
        wait_until(lambda: limit() == 7 and len(server.pids_of(SHORT_LANE)) == 2, server)
        updated_s = time.monotonic()
        deployer.deploy({"name": "ShortLane", "num_replicas": 1}, max_texts_per_request=7)
        wait_until(lambda: len(server.pids_of(SHORT_LANE)) == 1, server)
        crowd.wait_for_answer(time.monotonic())
        shrunk_s = time.monotonic()

    print(
        f"all replaced in {updated_s - began_s:.1f} s, one gone in {shrunk_s - updated_s:.1f} s; "
        f"{len(crowd.seen)} requests by HTTP, {len(by_grpc.labels)} by gRPC"
    )
    assert crowd.wrong() == []
    assert set(crowd.outcomes()) == {200}
    assert by_grpc.errors == []
    assert set(by_grpc.labels) == {"positive"}
