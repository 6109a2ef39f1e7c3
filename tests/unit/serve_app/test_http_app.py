"""The HTTP application without Ray: statuses, bodies, OpenAPI."""

import math

import numpy as np
import pytest
from bundles import FAILING_WORD, MULTI_LABEL, TOKEN, VOCABULARY, write_tiny_bundle
from door import Door
from fakes import FakeLane


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


class MultiLabelLane(FakeLane):
    """Gives three labels the scores 0.5, 0.25 and 0.75."""

    def logits_of(self, num_tokens):
        return np.array([0.0, -math.log(3), math.log(3)], dtype=np.float32)


class TokenLane(FakeLane):
    """Gives every token the second label."""

    def logits_of(self, num_tokens):
        return np.tile(np.array([0.0, 9.0, 0.0], dtype=np.float32), (num_tokens, 1))
