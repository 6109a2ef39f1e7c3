"""Routes beside predictions, the document of all of them, and what is recorded of each."""

import re

import pytest
from bundles import write_tiny_bundle
from door import PREDICT, Door

from pipeline.contract import errors
from serve_app.error_answers import ERROR_KINDS
from serve_app.schemas import ModelInfo, PredictRequest, SequenceResponse, TextsResponse


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("http") / "bundle").folder


@pytest.fixture
def client(folder):
    return Door(folder)


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
    assert set(document["paths"]) == {
        PREDICT,
        "/v1/feedback",
        "/v1/model",
        "/healthz",
        "/readyz",
    }
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
        and error is not errors.ReleaseConflictError
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


@pytest.mark.parametrize("key", ["", "a" * 129, "tab\there", "caf\u00e9"])
def test_a_release_key_that_cannot_be_one_is_refused(folder, key):
    answer = Door(folder).predict(
        {"text": "good"}, headers={"X-Release-Key": key.encode("latin-1")}
    )

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_request")
    assert error["field"] == "X-Release-Key"


def test_a_split_decides_by_the_release_key_and_its_version_stands_everywhere(folder):
    door = Door(folder)

    class ByKey:
        def choose(self, record):
            door.keys.append(record.release_key)
            return door.other

        def after_answer(self, request, record, prediction):
            door.told.append((request.text, record.version, len(prediction.outcomes)))

        def answering(self):
            return (door.service, door.other)

    door.keys, door.told = [], []
    door.other = Door(folder).service
    door.other.version = "v2"
    door.versions.split = ByKey()

    answer = door.predict({"text": "good"}, headers={"X-Release-Key": "client-7"})

    assert answer.json()["version"] == door.record.version == "v2"
    assert (door.keys, door.told) == (["client-7"], [("good", "v2", 1)])
