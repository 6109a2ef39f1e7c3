"""The HTTP application without Ray: statuses, bodies, request ids, OpenAPI."""

import asyncio
import json
import math

import httpx
import numpy as np
import pytest
from bundles import FAILING_WORD, MULTI_LABEL, TOKEN, VOCABULARY, write_tiny_bundle
from fakes import FakeLane, FakeObserver

from pipeline.contract.errors import MissingFileError, NotReadyError
from serve_app.config import ServeSettings
from serve_app.ingress import build_http_app
from serve_app.served import open_served
from serve_app.service import PredictService

PREDICT = "/v1/predict"


class Client:
    """Sends requests to the application in this process."""

    def __init__(self, folder, **options):
        served = open_served(ServeSettings(bundle=str(folder), **options))
        self.version = served.version
        self.lanes = {"short": FakeLane(served.version), "long": FakeLane(served.version)}
        encoder = served.bundle.load_text_encoder()
        service = PredictService(served, encoder=encoder, lanes=self.lanes)
        self.observer = FakeObserver()
        self._app = build_http_app(service, observer=self.observer)

    def send(self, method, path, **options):
        async def call():
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def predict(self, body, **options):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", PREDICT, content=content, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("http") / "bundle").folder


@pytest.fixture
def client(folder):
    return Client(folder)


def test_one_text_is_answered_flat(client):
    response = client.predict({"text": "good film is fun"})

    assert response.status_code == 200
    body = response.json()
    assert body.pop("request_id") == response.headers["x-request-id"]
    assert body.pop("score") == pytest.approx(1 / (1 + 2.718281828**-2.0))
    assert body == {
        "model": client.version,
        "label": "positive",
        "scores": None,
        "lane": "short",
        "num_tokens": 6,
        "is_truncated": False,
    }


def test_texts_are_answered_as_a_list_with_scores_if_asked(client):
    response = client.predict({"texts": ["good", "the " * 10], "scores": True})

    answers = response.json()["answers"]
    assert [answer["lane"] for answer in answers] == ["short", "long"]
    assert all(sum(answer["scores"].values()) == pytest.approx(1.0) for answer in answers)


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        (b"", 400, "InvalidRequestError", "invalid JSON"),
        (b"{", 400, "InvalidRequestError", "invalid JSON"),
        (b'{"text": "\xff"}', 400, "InvalidRequestError", "invalid JSON"),
        (b'{"text": "\\ud800"}', 400, "InvalidRequestError", "invalid JSON"),
        (b"[" * 100_000, 400, "InvalidRequestError", "invalid JSON"),
        (b"[1]", 400, "InvalidRequestError", "object"),
        ({}, 400, "InvalidRequestError", "exactly one of text, texts and words"),
        ({"text": "a", "texts": ["b"]}, 400, "InvalidRequestError", "text and texts"),
        ({"text": 1}, 400, "InvalidRequestError", "body['text']: input should be a valid string"),
        ({"text": None}, 400, "InvalidRequestError", "exactly one"),
        ({"texts": []}, 400, "InvalidRequestError", "body['texts']"),
        ({"texts": ["a", 1]}, 400, "InvalidRequestError", "body['texts'][1]"),
        ({"texts": ["a"] * 65}, 400, "InvalidRequestError", "65 texts are over the limit of 64"),
        (
            {"txt": "a"},
            400,
            "InvalidRequestError",
            "body['txt']: unknown field. Did you mean text?",
        ),
        ({"Texts": []}, 400, "InvalidRequestError", "unknown field. Did you mean texts? Send {"),
        ({"inputs": "a"}, 400, "InvalidRequestError", "body['inputs']: unknown field. Send {"),
        ({"text": "a", "scores": "yes"}, 400, "InvalidRequestError", "body['scores']"),
        ({"text": "a", "text_pair": "b"}, 400, "InvalidRequestError", "Leave text_pair out"),
        ({"words": ["a"]}, 400, "InvalidRequestError", "takes no words"),
        ({"text": ""}, 422, "EmptyTextError", "the text is empty"),
        ({"text": "\x00 \n"}, 422, "EmptyTextError", "the text is empty"),
        ({"text": "a" * 201}, 413, "TextTooLongError", "201 characters"),
    ],
)
def test_bad_request_is_refused_as_documented(client, body, status, kind, message):
    response = client.predict(body)

    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, kind)
    assert message in error["message"]
    assert error["request_id"] == response.headers["x-request-id"]
    assert client.lanes["short"].asked == []


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("http-pairs") / "bundle"
    return write_tiny_bundle(target, takes_pairs=True).folder


def test_a_pair_is_answered_flat(pair_folder):
    client = Client(pair_folder)

    response = client.predict({"text": "good film", "text_pair": "bad", "scores": True})

    body = response.json()
    assert (response.status_code, body["label"], body["num_tokens"]) == (200, "positive", 6)
    assert set(body["scores"]) == {"negative", "positive"}
    assert client.send("GET", "/v1/model").json()["takes_pairs"] is True


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        ({"text": "good"}, 400, "InvalidRequestError", "second text is missing. Give one text"),
        ({"texts": ["good", "bad"]}, 400, "InvalidRequestError", "second text is missing"),
        ({"text": "good", "text_pair": 1}, 400, "InvalidRequestError", "body['text_pair']"),
        ({"text_pair": "good"}, 400, "InvalidRequestError", "exactly one of text, texts and words"),
        (
            {"texts": ["a"], "text_pair": "b"},
            400,
            "InvalidRequestError",
            "text_pair goes with text",
        ),
        ({"text": "good", "text_pair": ""}, 422, "EmptyTextError", "text_pair: the text is empty"),
        (
            {"text": "a", "text_pair": "b" * 201},
            413,
            "TextTooLongError",
            "text_pair: 201 characters",
        ),
    ],
)
def test_what_is_no_pair_is_refused_by_a_model_of_pairs(pair_folder, body, status, kind, message):
    client = Client(pair_folder)

    response = client.predict(body)

    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, kind)
    assert message in error["message"]
    assert client.lanes["short"].asked == []


def test_multi_label_answers_name_every_label_given_and_all_scores_if_asked(tmp_path):
    client = Client(write_tiny_bundle(tmp_path / "bundle", task=MULTI_LABEL).folder)
    client.lanes["short"] = MultiLabelLane()

    plain = client.predict({"text": "good"}).json()
    scored = client.predict({"texts": ["good"], "scores": True}).json()["answers"]

    assert [given["label"] for given in plain["labels"]] == ["PER", "negative"]
    assert [given["score"] for given in plain["labels"]] == pytest.approx([0.75, 0.5])
    assert (plain["scores"], plain["num_tokens"], plain["model"]) == (None, 3, client.version)
    assert scored[0]["labels"] == plain["labels"]
    assert scored[0]["scores"] == pytest.approx({"negative": 0.5, "positive": 0.25, "PER": 0.75})


def test_body_over_the_limit_is_refused(folder):
    client = Client(folder, max_body_bytes=500)

    response = client.predict({"texts": ["good"] * 64})

    assert response.status_code == 413
    assert "over the limit of 500 bytes" in response.json()["error"]["message"]


def test_model_failure_is_500_without_a_traceback(client):
    client.lanes["short"].failing_ids = {VOCABULARY.index(FAILING_WORD)}

    response = client.predict({"text": FAILING_WORD})

    assert response.status_code == 500
    assert response.json()["error"]["type"] == "InferenceError"
    assert "Traceback" not in response.text


def test_overload_is_503_with_retry_after(folder):
    client = Client(folder, max_queued_requests=1, max_batch_requests=1, max_texts_per_request=1)
    client.lanes["short"].hold()

    async def both():
        transport = httpx.ASGITransport(client._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as sender:
            first = asyncio.create_task(sender.post(PREDICT, json={"text": "good"}))
            while not client.lanes["short"].asked:
                await asyncio.sleep(0)
            second = await sender.post(PREDICT, json={"text": "bad"})
            client.lanes["short"].release()
            return await first, second

    first, second = asyncio.run(both())

    assert first.status_code == 200
    assert (second.status_code, second.headers["retry-after"]) == (503, "1")
    assert second.json()["error"]["type"] == "OverloadedError"


def test_late_answer_is_504(folder):
    client = Client(folder, request_timeout_s=0.01, batch_wait_timeout_ms=0)
    client.lanes["long"].hold()

    response = client.predict({"text": "the " * 10})

    assert (response.status_code, response.json()["error"]["type"]) == (504, "DeadlineError")


class BrokenLane(FakeLane):
    """Raises what it was given."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def score(self, input_ids):
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (NotReadyError("a replica was lost"), 503, "NotReadyError"),
        (ZeroDivisionError("secret/path"), 500, "InternalError"),
        (MissingFileError("gone", place="secret/path"), 500, "MissingFileError"),
    ],
)
def test_unforeseen_failure_shows_nothing_of_the_inside(client, error, status, kind):
    client.lanes["short"] = BrokenLane(error)

    response = client.predict({"text": "good"})

    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nope", 404, "NotFound"),
        ("GET", PREDICT, 405, "MethodNotAllowed"),
    ],
)
def test_unknown_route_is_a_json_error_too(client, method, path, status, kind):
    response = client.send(method, path)

    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)


def test_given_request_id_comes_back_in_answer_and_error(client):
    headers = {"X-Request-ID": "order 66/a"}

    answer = client.predict({"text": "good"}, headers=headers)
    error = client.predict({"text": ""}, headers=headers)

    assert answer.json()["request_id"] == "order 66/a"
    assert error.json()["error"]["request_id"] == "order 66/a"


def test_requests_without_an_id_get_different_ones(client):
    ids = {client.predict({"text": "good"}).json()["request_id"] for _ in range(3)}

    assert len(ids) == 3


@pytest.mark.parametrize("request_id", ["", "a" * 129, "é".encode(), b"a\tb"])
def test_unusable_request_id_is_refused_and_not_repeated(client, request_id):
    response = client.predict({"text": "good"}, headers={"X-Request-ID": request_id})

    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "InvalidRequestError")
    assert len(error["request_id"]) == 32


def test_health_names_the_model_and_fails_with_a_lane(client):
    assert client.send("GET", "/healthz").json() == {"status": "ok", "model": client.version}

    client.lanes["long"].served_version = "other"

    assert client.send("GET", "/healthz").status_code == 503


def test_model_route_describes_the_bundle(client):
    body = client.send("GET", "/v1/model").json()

    assert (body["task"], body["labels"]) == ("sequence_classification", ["negative", "positive"])
    assert body["limits"]["max_seq_len"] == 16
    assert body["takes_pairs"] is False
    assert body["model"] == client.version


def test_openapi_describes_request_answers_and_errors(client):
    document = client.send("GET", "/openapi.json").json()

    predict = document["paths"][PREDICT]["post"]
    request = predict["requestBody"]["content"]["application/json"]["schema"]
    assert set(request["properties"]) == {"text", "text_pair", "texts", "words", "scores"}
    assert set(predict["responses"]) == {"200", "400", "413", "422", "500", "503", "504"}
    assert {"/healthz", "/v1/model"} <= set(document["paths"])
    schemas = document["components"]["schemas"]
    assert "ErrorBody" in schemas
    assert set(schemas["MultiLabelResponse"]["properties"]) >= {"labels", "scores", "request_id"}
    assert set(schemas["LabelAnswer"]["properties"]) == {"label", "score"}


def test_every_request_is_counted_by_known_path_and_status(client):
    client.predict({"text": "good"})
    client.predict({"text": ""})
    client.send("GET", "/" + "x" * 50)

    assert client.observer.seen == [(PREDICT, 200), (PREDICT, 422), ("other", 404)]


def test_token_model_labels_words_and_texts(tmp_path):
    client = Client(write_tiny_bundle(tmp_path / "bundle", task=TOKEN).folder)
    client.lanes["short"] = TokenLane()

    by_words = client.predict({"words": ["Anna", "lives"]}).json()
    by_text = client.predict({"text": "Anna lives"}).json()

    assert [(word["word"], word["label"]) for word in by_words["words"]] == [
        ("Anna", "PER"),
        ("lives", "PER"),
    ]
    assert by_text["words"] == by_words["words"]


class MultiLabelLane(FakeLane):
    """Gives three labels the scores 0.5, 0.25 and 0.75."""

    async def score(self, input_ids):
        return np.array([0.0, -math.log(3), math.log(3)], dtype=np.float32)


class TokenLane(FakeLane):
    """Gives every token the second label."""

    async def score(self, input_ids):
        return np.tile(np.array([0.0, 9.0, 0.0], dtype=np.float32), (len(input_ids), 1))
