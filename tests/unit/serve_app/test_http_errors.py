"""What a client is told when there is no answer."""

import asyncio

import pytest
from bundles import FAILING_WORD, VOCABULARY, write_tiny_bundle
from door import PREDICT, Door
from fakes import FakeLane

from pipeline.contract.errors import MissingFileError, NotReadyError, OverloadedError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("http") / "bundle").folder


@pytest.fixture
def client(folder):
    return Door(folder)


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


def test_retry_after_follows_the_rate_of_answers(folder, monkeypatch):
    client = Door(folder, max_queued_requests=4, max_batch_requests=1, max_texts_per_request=4)
    now = [100.0]
    # The service builds its own clock; here it stands still but for what the test says.
    monkeypatch.setattr(client.service._admission._rate, "_clock", lambda: now[0])

    async def fill():
        async with client.connect() as sender:
            for lane in client.lanes.values():
                lane.hold()
            first = asyncio.create_task(sender.post(PREDICT, json={"texts": ["good"] * 2}))
            second = asyncio.create_task(sender.post(PREDICT, json={"texts": ["the " * 20] * 2}))
            while not all(lane.asked for lane in client.lanes.values()):
                await asyncio.sleep(0)
            now[0] += 8.0
            client.lanes["short"].release()
            await first
            refused = await sender.post(PREDICT, json={"texts": ["bad"] * 3})
            client.lanes["long"].release()
            return refused, await second

    refused, second = asyncio.run(fill())

    # Two texts in 8 s, so the two in hand need 8 s more.
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "8")
    assert second.status_code == 200


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
