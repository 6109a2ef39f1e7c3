"""The HTTP application without Ray: statuses, bodies, OpenAPI."""

import asyncio
import math
import re

import numpy as np
import pytest
from bundles import FAILING_WORD, MULTI_LABEL, TOKEN, VOCABULARY, write_tiny_bundle
from door import PREDICT, Door
from fakes import FakeLane

from pipeline.contract import errors
from pipeline.contract.errors import MissingFileError, NotReadyError, OverloadedError
from serve_app.error_answers import ERROR_KINDS
from serve_app.schemas import ModelInfo, PredictRequest, SequenceResponse, TextsResponse


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("http") / "bundle").folder


@pytest.fixture
def client(folder):
    return Door(folder)


def test_one_text_is_answered_flat(client):
    response = client.predict({"text": "good film is fun"})

    assert response.status_code == 200
    body = response.json()
    assert body.pop("request_id") == response.headers["x-request-id"]
    assert body.pop("score") == pytest.approx(1 / (1 + 2.718281828**-2.0))
    assert body == {
        "version": client.version,
        "label": "positive",
        "scores": None,
        "top": None,
        "timings": None,
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
    ("body", "status", "code", "message"),
    [
        (b"", 400, "invalid_request", "invalid JSON"),
        (b"{", 400, "invalid_request", "invalid JSON"),
        (b'{"text": "\xff"}', 400, "invalid_request", "invalid JSON"),
        (b'{"text": "\\ud800"}', 400, "invalid_request", "invalid JSON"),
        (b"[" * 100_000, 400, "invalid_request", "invalid JSON"),
        (b"[1]", 400, "invalid_request", "object"),
        ({}, 400, "invalid_request", "exactly one of text, texts and words"),
        ({"text": "a", "texts": ["b"]}, 400, "invalid_request", "text and texts"),
        ({"text": 1}, 400, "invalid_request", "text: input should be a valid string"),
        ({"text": None}, 400, "invalid_request", "exactly one"),
        ({"texts": []}, 400, "invalid_request", "texts"),
        ({"text": "a", "top_k": 0}, 400, "invalid_request", "top_k"),
        ({"text": "a", "top_k": True}, 400, "invalid_request", "top_k"),
        ({"text": "a", "timings": 1}, 400, "invalid_request", "timings"),
        ({"texts": ["a"] * 65}, 413, "too_many_texts", "65 texts are over the limit of 64"),
        (
            {"txt": "a"},
            400,
            "invalid_request",
            "txt: unknown field. Did you mean text?",
        ),
        ({"Texts": []}, 400, "invalid_request", "unknown field. Did you mean texts? Send {"),
        ({"inputs": "a"}, 400, "invalid_request", "inputs: unknown field. Send {"),
        ({"text": "a", "scores": "yes"}, 400, "invalid_request", "scores"),
        ({"text": "a", "text_pair": "b"}, 400, "invalid_request", "Leave text_pair out"),
        ({"words": ["a"]}, 400, "invalid_request", "takes no words"),
        ({"text": ""}, 400, "empty_text", "the text is empty"),
        ({"text": "\x00 \n"}, 400, "empty_text", "the text is empty"),
        ({"text": "a" * 201}, 413, "text_too_long", "201 characters"),
    ],
)
def test_bad_request_is_refused_as_documented(client, body, status, code, message):
    response = client.predict(body)

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert message in error["message"]
    assert error["request_id"] == response.headers["x-request-id"]
    assert client.lanes["short"].asked == []


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("http-pairs") / "bundle"
    return write_tiny_bundle(target, takes_pairs=True).folder


def test_a_pair_is_answered_flat(pair_folder):
    client = Door(pair_folder)

    response = client.predict({"text": "good film", "text_pair": "bad", "scores": True})

    body = response.json()
    assert (response.status_code, body["label"], body["num_tokens"]) == (200, "positive", 6)
    assert set(body["scores"]) == {"negative", "positive"}
    assert client.send("GET", "/v1/model").json()["takes_pairs"] is True


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        ({"text": "good"}, 400, "invalid_request", "second text is missing. Give one text"),
        ({"texts": ["good", "bad"]}, 400, "invalid_request", "second text is missing"),
        ({"text": "good", "text_pair": 1}, 400, "invalid_request", "text_pair"),
        ({"text_pair": "good"}, 400, "invalid_request", "exactly one of text, texts and words"),
        (
            {"texts": ["a"], "text_pair": "b"},
            400,
            "invalid_request",
            "text_pair goes with text",
        ),
        ({"text": "good", "text_pair": ""}, 400, "empty_text", "text_pair: the text is empty"),
        (
            {"text": "a", "text_pair": "b" * 201},
            413,
            "text_too_long",
            "text_pair: 201 characters",
        ),
    ],
)
def test_what_is_no_pair_is_refused_by_a_model_of_pairs(pair_folder, body, status, code, message):
    client = Door(pair_folder)

    response = client.predict(body)

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert message in error["message"]
    assert client.lanes["short"].asked == []


def test_multi_label_answers_name_every_label_given_and_all_scores_if_asked(tmp_path):
    client = Door(write_tiny_bundle(tmp_path / "bundle", task=MULTI_LABEL).folder)
    client.lanes["short"] = MultiLabelLane()

    plain = client.predict({"text": "good"}).json()
    scored = client.predict({"texts": ["good"], "scores": True}).json()["answers"]

    assert [given["label"] for given in plain["labels"]] == ["PER", "negative"]
    assert [given["score"] for given in plain["labels"]] == pytest.approx([0.75, 0.5])
    assert (plain["scores"], plain["num_tokens"], plain["version"]) == (None, 3, client.version)
    assert scored[0]["labels"] == plain["labels"]
    assert scored[0]["scores"] == pytest.approx({"negative": 0.5, "positive": 0.25, "PER": 0.75})


def test_body_over_the_limit_is_refused(folder):
    client = Door(folder, max_body_bytes=500)

    response = client.predict({"texts": ["good"] * 64})

    assert response.status_code == 413
    assert "over the limit of 500 bytes" in response.json()["error"]["message"]


def test_model_failure_is_500_without_a_traceback(client):
    client.lanes["short"].failing_ids = {VOCABULARY.index(FAILING_WORD)}

    response = client.predict({"text": FAILING_WORD})

    assert response.status_code == 500
    assert response.json()["error"]["code"] == "inference_failed"
    assert "Traceback" not in response.text


def test_overload_is_429_with_retry_after(folder):
    client = Door(folder, max_queued_requests=1, max_batch_requests=1, max_texts_per_request=1)
    client.lanes["short"].hold()

    async def both():
        async with client.connect() as sender:
            first = asyncio.create_task(sender.post(PREDICT, json={"text": "good"}))
            while not client.lanes["short"].asked:
                await asyncio.sleep(0)
            second = await sender.post(PREDICT, json={"text": "bad"})
            client.lanes["short"].release()
            return await first, second

    first, second = asyncio.run(both())

    assert first.status_code == 200
    assert (second.status_code, second.headers["retry-after"]) == (429, "1")
    error = second.json()["error"]
    assert (error["code"], error["field"]) == ("overloaded", None)


def test_late_answer_is_504(folder):
    client = Door(folder, request_timeout_s=0.01, batch_wait_timeout_ms=0)
    client.lanes["long"].hold()

    response = client.predict({"text": "the " * 10})

    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")


class BrokenLane(FakeLane):
    """Raises what it was given."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def score(self, row):
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotReadyError("a replica was lost"), 503, "not_ready"),
        (OverloadedError("the lane's queue is full"), 429, "overloaded"),
        (ZeroDivisionError("secret/path"), 500, "internal_error"),
        (MissingFileError("gone", place="secret/path"), 500, "internal_error"),
    ],
)
def test_unforeseen_failure_shows_nothing_of_the_inside(client, error, status, code):
    client.lanes["short"] = BrokenLane(error)

    response = client.predict({"text": "good"})

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["field"]) == (status, code, None)
    assert "secret" not in response.text
    assert ("retry-after" in response.headers) == (status in (429, 503))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("GET", PREDICT, 405, "method_not_allowed"),
    ],
)
def test_unknown_route_is_a_json_error_too(client, method, path, status, code):
    response = client.send(method, path)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_alive_asks_nobody_and_ready_asks_both_lanes(client):
    assert client.send("GET", "/readyz").json() == {"status": "ready", "version": client.version}

    client.lanes["long"].served_version = "other"

    not_ready = client.send("GET", "/readyz")
    assert (not_ready.status_code, not_ready.json()["error"]["code"]) == (503, "not_ready")
    assert client.send("GET", "/healthz").json() == {"status": "alive"}


def test_model_route_describes_the_bundle(client):
    body = client.send("GET", "/v1/model").json()

    assert (body["task"], body["labels"]) == ("sequence_classification", ["negative", "positive"])
    assert body["limits"]["max_seq_len"] == 16
    assert body["takes_pairs"] is False
    assert body["version"] == client.version


def test_openapi_describes_request_answers_and_errors(client):
    document = client.send("GET", "/openapi.json").json()

    predict, schemas = document["paths"][PREDICT]["post"], document["components"]["schemas"]
    assert predict["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/PredictRequest"
    }
    assert set(schemas["PredictRequest"]["properties"]) == set(PredictRequest.model_fields)
    assert schemas["PredictRequest"]["properties"]["texts"]["anyOf"][0]["items"] == {
        "type": "string"
    }
    assert set(document["paths"]) == {PREDICT, "/v1/model", "/healthz", "/readyz"}
    assert set(schemas["MultiLabelResponse"]["properties"]) >= {"labels", "scores", "request_id"}
    assert set(schemas["ErrorDetail"]["properties"]) == {"code", "message", "field", "request_id"}
    assert "softmax" in schemas["SequenceResponse"]["properties"]["score"]["description"]


def test_openapi_names_every_error_that_a_client_can_meet(folder):
    document = Door(folder, api_keys=["secret-key"]).send("GET", "/openapi.json").json()

    responses = document["paths"][PREDICT]["post"]["responses"]
    visible = {
        kind
        for error, kind in ERROR_KINDS.items()
        if issubclass(error, errors.RequestError | errors.ServiceError)
    }
    for kind in visible:
        assert kind.code in responses[str(kind.status)]["description"]
    assert set(responses) == {"200", *(str(kind.status) for kind in visible)}
    assert document["paths"]["/v1/model"]["get"]["security"]
    assert "security" not in document["paths"]["/healthz"]["get"]


def test_every_reference_in_openapi_is_defined(client):
    text = client.send("GET", "/openapi.json").text

    names = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert names <= set(client.send("GET", "/openapi.json").json()["components"]["schemas"])


def test_every_request_is_recorded_by_known_path_status_and_code(client):
    client.predict({"text": "good"})
    client.predict({"text": ""})
    client.send("GET", "/" + "x" * 50)

    seen = [(record.path, record.status, record.code) for record in client.observer.records]
    assert seen == [
        (PREDICT, 200, "ok"),
        (PREDICT, 400, "empty_text"),
        ("other", 404, "not_found"),
    ]


def test_token_model_labels_words_and_texts_with_their_places(tmp_path):
    client = Door(write_tiny_bundle(tmp_path / "bundle", task=TOKEN).folder)
    client.lanes["short"] = TokenLane()

    by_words = client.predict({"words": ["Anna", "lives"]}).json()
    by_text = client.predict({"text": " Anna\t lives "}).json()

    labels = [("Anna", "PER"), ("lives", "PER")]
    assert [(word["word"], word["label"]) for word in by_words["words"]] == labels
    assert [(word["word"], word["label"]) for word in by_text["words"]] == labels
    assert [(word["start"], word["end"]) for word in by_text["words"]] == [(1, 5), (7, 12)]
    assert {word["start"] for word in by_words["words"]} == {None}


@pytest.mark.parametrize("field", ["scores", "top_k"])
def test_token_model_refuses_what_it_would_not_heed(tmp_path, field):
    client = Door(write_tiny_bundle(tmp_path / "bundle", task=TOKEN).folder)

    response = client.predict({"text": "Anna", field: True if field == "scores" else 1})

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["field"]) == (400, "invalid_request", field)


def test_top_k_names_the_highest_labels_and_no_more_than_there_are(client):
    one = client.predict({"text": "good", "top_k": 1}).json()
    all_labels = client.predict({"text": "good", "top_k": 5}).json()["top"]

    assert one["top"] == [{"label": one["label"], "score": one["score"]}]
    assert [given["label"] for given in all_labels] == ["negative", "positive"]
    assert all_labels[0]["score"] > all_labels[1]["score"]


def test_timings_are_the_lanes_figures_and_add_up(client):
    timings = client.predict({"text": "good", "timings": True}).json()["timings"]

    assert (timings["queue_ms"], timings["session_ms"], timings["batch_rows"]) == (1.5, 2.5, 4)
    assert 0.0 <= timings["tokenise_ms"] <= timings["total_ms"]


def test_each_text_of_a_list_is_answered_or_fails_alone(client):
    client.lanes["short"].failing_ids = {VOCABULARY.index(FAILING_WORD)}
    texts = ["good", "", 7, None, ["good"], "a" * 201, FAILING_WORD, "\u200b", "bad"]

    response = client.predict({"texts": texts})

    answers = response.json()["answers"]
    codes = [answer["error"]["code"] if "error" in answer else "ok" for answer in answers]
    assert response.status_code == 200
    assert codes == [
        "ok",
        "empty_text",
        "invalid_request",
        "invalid_request",
        "invalid_request",
        "text_too_long",
        "inference_failed",
        "empty_text",
        "ok",
    ]
    assert [a["error"]["field"] for a in answers[1:3]] == ["texts[1]", "texts[2]"]
    assert (client.record.num_texts, client.record.num_failed) == (9, 7)


def test_texts_over_max_seq_len_are_cut_or_refused_as_set(folder):
    long_text = "the " * 40
    cut = Door(folder).predict({"text": long_text})
    refusing = Door(folder, on_too_long="reject")
    refused = refusing.predict({"text": long_text})
    beside = refusing.predict({"texts": ["good", long_text]}).json()["answers"]

    assert cut.json()["is_truncated"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "too_many_tokens")
    assert "over the limit of 16 tokens" in refused.json()["error"]["message"]
    assert [answer.get("label") for answer in beside] == ["negative", None]


@pytest.mark.parametrize(
    ("path", "code"), [(PREDICT, "method_not_allowed"), ("/readyz", "method_not_allowed")]
)
def test_a_wrong_method_is_told_the_right_one(client, path, code):
    response = client.send("DELETE", path)

    assert (response.status_code, response.json()["error"]["code"]) == (405, code)
    assert response.headers["allow"] in ("POST", "GET")


@pytest.mark.parametrize(
    ("method", "path", "body", "model"),
    [
        ("POST", PREDICT, {"text": "good", "scores": True, "timings": True}, SequenceResponse),
        ("POST", PREDICT, {"texts": ["good", ""], "top_k": 2}, TextsResponse),
        ("GET", "/v1/model", None, ModelInfo),
    ],
)
def test_answers_are_what_openapi_says(client, method, path, body, model):
    response = client.send(method, path, json=body)

    model.model_validate_json(response.content)


class MultiLabelLane(FakeLane):
    """Gives three labels the scores 0.5, 0.25 and 0.75."""

    def logits_of(self, num_tokens):
        return np.array([0.0, -math.log(3), math.log(3)], dtype=np.float32)


class TokenLane(FakeLane):
    """Gives every token the second label."""

    def logits_of(self, num_tokens):
        return np.tile(np.array([0.0, 9.0, 0.0], dtype=np.float32), (num_tokens, 1))
