"""A real bundle behind real Ray Serve replicas, asked over HTTP."""

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
from bundles import FAILING_WORD, write_tiny_bundle

from cluster.serve_config import GRPC_FUNCTION
from serve_app.answers import build_answer
from serve_app.config import ServeSettings
from serve_app.encoding import encode_texts
from serve_app.rpc.predict_pb2 import PredictRequest
from serve_app.rpc.predictor import PredictorStub
from serve_app.served import open_served
from serve_app.session import ScoringSession

pytestmark = pytest.mark.ray

SHORT, LONG = "The good film is fun", "a dull film " * 5
PREDICT = "/v1/predict"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def bundle_dir(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("serve") / "bundle").folder


@pytest.fixture(scope="module")
def grpc_port():
    return free_port()


@pytest.fixture(scope="module")
def serve_url(ray_cluster, bundle_dir, grpc_port):
    from ray import serve

    from serve_app.app import build_app

    port = free_port()
    serve.start(
        http_options={"host": "127.0.0.1", "port": port},
        grpc_options={"port": grpc_port, "grpc_servicer_functions": [GRPC_FUNCTION]},
        proxy_location="HeadOnly",
    )
    try:
        args = {"bundle": str(bundle_dir), "threads_per_replica": 1, "admin_port": 0}
        serve.run(build_app({**args, "max_body_bytes": 20_000}), name="tiny", route_prefix="/")
        # Waits a second for a second text, gives up just after, and holds two texts at most.
        strict = {
            "batch_wait_timeout_ms": 1000,
            "wait_when_idle": True,
            "request_timeout_s": 1.001,
            "max_batch_requests": 2,
            "max_texts_per_request": 2,
            "max_queued_requests": 2,
        }
        serve.run(build_app({**args, **strict}), name="strict", route_prefix="/strict")
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()


@pytest.fixture(scope="module")
def client(serve_url):
    with httpx.Client(base_url=serve_url, timeout=30.0) as client:
        yield client


@pytest.fixture(scope="module")
def strict(serve_url):
    with httpx.Client(base_url=f"{serve_url}/strict", timeout=30.0) as client:
        yield client


@pytest.mark.parametrize(("text", "lane"), [(SHORT, "short"), (LONG, "long")])
def test_text_is_answered_by_the_lane_of_its_length(client, text, lane):
    response = client.post(PREDICT, json={"text": text})

    assert response.status_code == 200
    assert response.json()["lane"] == lane


def test_answers_equal_those_of_a_session_in_this_process(client, bundle_dir):
    served = open_served(ServeSettings(bundle=str(bundle_dir)))
    manifest = served.bundle.manifest
    session = ScoringSession(
        served.model_path, pad_token_id=manifest.pad_token_id, num_labels=2, num_threads=1
    )
    texts = [SHORT, LONG, "bad", "fun fun dull"]
    rows = encode_texts(
        texts,
        encoder=served.bundle.load_text_encoder(),
        task=manifest.task,
        limits=served.limits,
    )
    expected = []
    for row in rows:
        (logits,) = session.score_group([row.input_ids])
        expected.append(build_answer(row, logits, task=manifest.task, labels=manifest.labels))

    answers = client.post(PREDICT, json={"texts": texts}).json()["answers"]

    assert [answer["label"] for answer in answers] == [answer.label for answer in expected]
    np.testing.assert_allclose(
        [answer["score"] for answer in answers], [answer.score for answer in expected], atol=1e-6
    )


def test_a_failing_text_fails_alone_among_concurrent_ones(client):
    texts = [SHORT, FAILING_WORD, "bad", LONG] * 4

    with ThreadPoolExecutor(16) as pool:
        responses = list(pool.map(lambda text: client.post(PREDICT, json={"text": text}), texts))

    for text, response in zip(texts, responses, strict=True):
        assert response.status_code == (500 if text == FAILING_WORD else 200)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_request"),
        (b'{"text": "\xff"}', 400, "invalid_request"),
        (b'{"text": 1}', 400, "invalid_request"),
        (b'{"txt": "a"}', 400, "invalid_request"),
        (b'{"text": "\\ud800"}', 400, "invalid_request"),
        (b'{"text": ""}', 400, "empty_text"),
        (b'{"text": "%s"}' % (b"a" * 201), 413, "text_too_long"),
        (b'{"text": "%s"}' % (b"a" * 20_000), 413, "body_too_large"),
        (b'{"text": "boom"}', 500, "inference_failed"),
    ],
)
def test_error_has_its_status_and_a_json_body(client, body, status, code):
    response = client.post(PREDICT, content=body)

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert error["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text


def test_request_id_comes_back_once_in_header_and_body(client):
    response = client.post(PREDICT, json={"text": SHORT}, headers={"X-Request-ID": "mine-1"})

    assert response.json()["request_id"] == "mine-1"
    assert response.headers.get_list("x-request-id") == ["mine-1"]


def test_unusable_request_id_is_refused(client):
    response = client.get("/healthz", headers={"X-Request-ID": "a" * 129})

    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


def test_health_model_and_openapi_are_there(client):
    ready = client.get("/readyz").json()
    model = client.get("/v1/model").json()
    document = client.get("/openapi.json").json()

    assert client.get("/healthz").json() == {"status": "alive"}
    assert ready == {"status": "ready", "version": model["version"]}
    assert model["labels"] == ["negative", "positive"]
    assert set(document["paths"]) == {PREDICT, "/v1/feedback", "/healthz", "/readyz", "/v1/model"}


def test_answer_that_is_not_there_in_time_is_504(strict):
    response = strict.post(PREDICT, json={"text": SHORT})

    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_text_over_the_admission_limit_is_429_with_retry_after(strict):
    with ThreadPoolExecutor(4) as pool:
        responses = list(
            pool.map(lambda _: strict.post(PREDICT, json={"texts": [SHORT, LONG]}), range(4))
        )

    shed = [response for response in responses if response.status_code == 429]
    assert shed
    # No text waits longer than request_timeout_s, so no client is told more.
    assert {response.headers["retry-after"] for response in shed} <= {"1", "2"}
    assert {response.json()["error"]["code"] for response in shed} == {"overloaded"}


def test_rays_own_grpc_proxy_answers_as_http_does(client, serve_url, grpc_port):
    expected = client.post(PREDICT, json={"texts": [SHORT, "", FAILING_WORD], "top_k": 1}).json()
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        predictor = PredictorStub(channel)
        asked = PredictRequest(texts=[SHORT, "", FAILING_WORD], top_k=1)
        sent = [("application", "tiny"), ("request_id", "mine-2")]
        answer = predictor.Predict(asked, metadata=sent, timeout=30)
        late, many = [], [PredictRequest(text=SHORT), PredictRequest(texts=[SHORT] * 3)]
        for message in many:
            with pytest.raises(grpc.RpcError) as caught:
                predictor.Predict(message, metadata=[("application", "strict")], timeout=30)
            late.append((caught.value.code(), dict(caught.value.trailing_metadata())))

    good, empty, failed = answer.answers
    assert (answer.request_id, good.answer.label) == ("mine-2", expected["answers"][0]["label"])
    assert good.answer.top[0].score == pytest.approx(expected["answers"][0]["top"][0]["score"])
    codes = [item["error"]["code"] for item in expected["answers"][1:]]
    assert [empty.error.code, failed.error.code] == codes
    assert [code for code, _ in late] == [
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INVALID_ARGUMENT,
    ]
    assert [told["error-code"] for _, told in late] == ["deadline_exceeded", "too_many_texts"]


def test_a_grpc_call_whose_deadline_passed_is_dropped(strict, serve_url, grpc_port):
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        sent = [("application", "strict")]
        with pytest.raises(grpc.RpcError) as caught:
            PredictorStub(channel).Predict(PredictRequest(text=SHORT), metadata=sent, timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    # Two texts are the most that may be in hand; it would have been one of them for a second.
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: strict.post(PREDICT, json={"text": SHORT}), range(2)))

    assert 429 not in {answer.status_code for answer in answers}


def descendants():
    """Return pid → command line of every process below this one."""
    parents, commands = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(
                    (folder / "stat").read_text().rpartition(")")[2].split()[1]
                )
                commands[int(folder.name)] = (folder / "cmdline").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return {pid: commands[pid] for pid in found if pid in commands}


def replica_pids(name):
    return [pid for pid, command in descendants().items() if f"ServeReplica:{name}" in command]


def test_no_replica_has_torch_in_memory(client):
    pids = replica_pids("tiny:")

    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in pids]

    assert len(pids) == 4
    assert any("onnxruntime" in text for text in maps)
    assert not any("torch" in text for text in maps)


def exported():
    """Return all metrics of this node, as Prometheus gets them."""
    import ray

    port = ray.nodes()[0]["MetricsExportPort"]
    return httpx.get(f"http://127.0.0.1:{port}/metrics").text


def scrape(name):
    """Return the sum of one exported metric over all replicas."""
    lines = [line for line in exported().splitlines() if line.startswith(f"ray_textlane_{name}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def wait_for(condition, *, timeout_s=40.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.2)


def test_concurrent_requests_share_model_runs_and_are_counted(client):
    num_texts = 128
    wait_for(lambda: scrape("rows_total") > 0)
    rows_before, runs_before = scrape("rows_total"), scrape("batch_rows_count")

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda _: client.post(PREDICT, json={"text": "good"}), range(num_texts)))

    wait_for(lambda: scrape("rows_total") >= rows_before + num_texts)
    assert scrape("batch_rows_count") - runs_before <= num_texts / 2
    assert scrape("requests_total") > 0
    assert scrape("padded_tokens_total") >= scrape("real_tokens_total") > 0
    wait_for(lambda: scrape("session_seconds_total") > 0)
    wait_for(lambda: scrape("queued_texts") == scrape("queue_age_seconds") == 0)
    assert "gpu_utilisation" not in exported()


def test_a_killed_replica_is_replaced_and_no_answer_is_wrong(client):
    (pid,) = replica_pids("tiny:ShortLane")

    os.kill(pid, signal.SIGKILL)
    statuses = [client.post(PREDICT, json={"text": SHORT}).status_code for _ in range(5)]

    assert set(statuses) <= {200, 503}
    wait_for(lambda: client.post(PREDICT, json={"text": SHORT}).status_code == 200)
    wait_for(lambda: client.get("/readyz").status_code == 200)
