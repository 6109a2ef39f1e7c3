"""`POST /v1/feedback`: what it counts, and what it refuses."""

import json
from dataclasses import dataclass

import pytest
from bundles import write_tiny_bundle
from door import Door
from fakes import FakeFeedbackDesk

from pipeline.contract.errors import InvalidRequestError
from serve_app.feedback_door import judge_feedback
from serve_app.release.feedback_taker import FeedbackTaker
from serve_app.release.report import Feedback
from serve_app.release.traffic import TrafficLog
from serve_app.schemas import FeedbackRequest
from serve_app.versions import Untold, Versions

PATH = "/v1/feedback"


@dataclass
class Manifest:
    task: str
    labels: tuple[str, ...] = ("a", "b", "c")


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    return Door(write_tiny_bundle(tmp_path_factory.mktemp("feedback") / "bundle").folder)


def post(door, body, **options):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return door.send("POST", PATH, content=content, **options)


def good(door, **changes):
    body = {
        "request_id": "r1",
        "version": door.version,
        "predicted": "positive",
        "label": "negative",
    }
    return {**body, **changes}


def judge(task, predicted, label):
    desk = FakeFeedbackDesk({"v": Manifest(task)})
    request = FeedbackRequest(request_id="r", version="v", predicted=predicted, label=label)
    return judge_feedback(request, desk).is_right


@pytest.mark.parametrize("label", ["positive", "negative"])
def test_feedback_is_counted_for_the_version_that_answered(door, label):
    response = post(door, good(door, label=label))

    is_right = label == "positive"
    assert (response.status_code, response.json()) == (
        200,
        {"request_id": "r1", "is_right": is_right},
    )
    assert door.feedback.taken[-1] == Feedback(
        version=door.version, is_right=is_right, request_id="r1"
    )


def test_what_an_answer_holds_can_be_sent_back_as_it_is(door):
    answer = door.predict({"text": "good film"}).json()

    names = ("request_id", "version")
    body = {name: answer[name] for name in names}
    response = post(door, {**body, "predicted": answer["label"], "label": answer["label"]})

    assert response.json()["is_right"] is True


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request_id": ""}, "request_id"),
        ({"request_id": "x" * 129}, "request_id"),
        ({"request_id": "a\nb"}, "request_id"),
        ({"request_id": "é"}, "request_id"),
        ({"request_id": 7}, "request_id"),
        ({"version": ""}, "version"),
        ({"version": "gone"}, "version"),
        ({"version": "x" * 100_000}, "version"),
        ({"version": None}, "version"),
        ({"predicted": ""}, "predicted"),
        ({"predicted": "x" * 100_000}, "predicted"),
        ({"predicted": 1}, "predicted"),
        ({"predicted": {"a": [1]}}, "predicted"),
        ({"label": "neutral"}, "label"),
        ({"label": ["positive"]}, "label"),
        ({"label": None}, "label"),
        ({"label": "positive\u202e"}, "label"),
        ({"lable": "positive"}, "lable"),
    ],
    ids=str,
)
def test_what_cannot_be_feedback_is_refused_by_its_field(door, changes, field):
    before = len(door.feedback.taken)

    response = post(door, good(door, **changes))

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["field"]) == (400, "invalid_request", field)
    assert len(response.content) < 1000
    assert len(door.feedback.taken) == before


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"request_id": "\\ud800"}', b"{}"], ids=repr
)
def test_what_is_no_feedback_at_all_is_refused(door, body):
    response = post(door, body)

    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


def test_a_body_over_the_limit_is_refused(tmp_path):
    door = Door(
        write_tiny_bundle(tmp_path / "bundle").folder, max_body_bytes=1000, max_text_chars=100
    )

    response = post(door, good(door, label="x" * 2000))

    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


def test_only_post_is_taken(door):
    response = door.send("GET", PATH)

    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_feedback_asks_for_the_key_that_predictions_ask_for(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder, api_keys=["secret-key"])

    assert post(door, good(door)).status_code == 401
    assert post(door, good(door), headers={"X-API-Key": "secret-key"}).status_code == 200


def test_labels_of_a_multi_label_model_are_compared_as_sets():
    task = "multi_label_classification"

    assert judge(task, ["a", "b"], ["b", "a"])
    assert judge(task, [], [])
    assert not judge(task, ["a"], ["a", "b"])


def test_labels_of_words_are_compared_one_by_one():
    task = "token_classification"

    assert judge(task, ["a", None], ["a", None])
    assert not judge(task, ["a", "b"], ["b", "a"])
    with pytest.raises(InvalidRequestError, match="1 labels are not the 2 of predicted"):
        judge(task, ["a", "b"], ["a"])


@pytest.mark.parametrize(
    ("task", "predicted"),
    [
        ("multi_label_classification", "a"),
        ("multi_label_classification", [None]),
        ("token_classification", "a"),
        ("token_classification", ["d"]),
        ("token_classification", [["a"]]),
        ("sequence_classification", ["a"]),
    ],
)
def test_labels_in_another_task_s_form_are_refused(task, predicted):
    with pytest.raises(InvalidRequestError, match="predicted"):
        judge(task, predicted, predicted)


def test_an_ingress_takes_feedback_on_the_versions_that_answer(door):
    log = TrafficLog(predict_paths=("/v1/predict",), seed=0)
    taker = FeedbackTaker(door.versions, log=log)
    feedback = Feedback(version=door.version, is_right=True, request_id="r")

    taker.add_feedback(feedback)  # No release is under way.
    log.is_open = True
    taker.add_feedback(feedback)

    assert taker.find_version(door.version).labels == ("negative", "positive")
    assert taker.find_version("gone") is None
    report = log.take_report(reporter="i", sequence=1, table_number=1)
    assert list(report.feedback) == [feedback]


def test_an_ingress_that_was_not_told_yet_knows_no_version(door):
    taker = FeedbackTaker(
        Versions(door.service, split=Untold()), log=TrafficLog(predict_paths=("/v1/predict",))
    )

    assert taker.find_version(door.version) is None
