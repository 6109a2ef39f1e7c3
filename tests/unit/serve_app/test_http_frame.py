"""Around every request: id, key, deadline, limits, and a client that leaves."""

import asyncio
import json
import logging

import pytest
from bundles import write_tiny_bundle
from door import PREDICT, Connection, Door, http_scope

from serve_app.request_log import RequestLog

KEY = "a-key-of-16-chars"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("frame") / "bundle").folder


@pytest.fixture
def door(folder):
    return Door(folder)


def test_given_request_id_comes_back_in_answer_and_error_and_goes_to_the_lane(door):
    headers = {"X-Request-ID": "order 66/a"}

    answer = door.predict({"text": "good"}, headers=headers)
    error = door.predict({"text": ""}, headers=headers)

    assert answer.json()["request_id"] == "order 66/a"
    assert error.json()["error"]["request_id"] == "order 66/a"
    assert door.lanes["short"].rows[0].request_id == "order 66/a"


def test_requests_without_an_id_get_different_ones_also_in_the_header(door):
    answers = [door.predict({"text": "good"}) for _ in range(3)]

    assert len({answer.json()["request_id"] for answer in answers}) == 3
    for answer in answers:
        assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert len(door.send("GET", "/healthz").headers["x-request-id"]) == 32


@pytest.mark.parametrize("request_id", ["", "a" * 129, "é".encode(), b"a\tb"])
def test_unusable_request_id_is_refused_and_not_repeated(door, request_id):
    response = door.predict({"text": "good"}, headers={"X-Request-ID": request_id})

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "invalid_request")
    assert error["field"] == "X-Request-ID"
    assert len(error["request_id"]) == 32


def test_a_path_below_a_prefix_is_the_same_path(folder):
    door = Door(folder, api_keys=[KEY])
    connection = Connection(b'{"text": "good"}')
    scope = http_scope(
        path="/strict/v1/predict", root_path="/strict", headers=[(b"x-api-key", KEY.encode())]
    )

    asyncio.run(door.app(scope, connection.receive, connection.send))

    assert connection.sent[0]["status"] == 200
    assert door.record.path == PREDICT


@pytest.mark.parametrize(
    "headers",
    [{"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}, {"authorization": f"bearer {KEY}"}],
)
def test_a_served_key_opens_in_either_header(folder, headers):
    door = Door(folder, api_keys=["another-key", KEY])

    assert door.predict({"text": "good"}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "there is no API key"),
        ({"X-API-Key": ""}, "there is no API key"),
        ({"X-API-Key": KEY[:-1]}, "not a key that is served"),
        ({"X-API-Key": KEY + "x"}, "not a key that is served"),
        ({"X-API-Key": "é".encode()}, "not a key that is served"),
        ({"Authorization": f"Basic {KEY}"}, "there is no API key"),
        ({"Authorization": "Bearer"}, "there is no API key"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path", "prefix"),
    [("POST", PREDICT, ""), ("GET", "/v1/model", ""), ("GET", "/v1/x", "")],
)
def test_without_a_served_key_nothing_under_v1_is_answered(
    folder, headers, message, method, path, prefix
):
    door = Door(folder, api_keys=[KEY])

    response = door.send(method, prefix + path, headers=headers, content=b"{}")

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (401, "unauthorized")
    assert message in error["message"]
    assert KEY not in response.text
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/openapi.json"])
def test_health_page_and_document_need_no_key(folder, path):
    assert Door(folder, api_keys=[KEY]).send("GET", path).status_code == 200


def test_the_body_of_a_request_without_key_is_not_read(folder):
    door = Door(folder, api_keys=[KEY])
    connection = Connection(b"x" * 1000)

    asyncio.run(door.app(http_scope(b"x" * 1000), connection.receive, connection.send))

    assert connection.sent[0]["status"] == 401
    assert connection.num_reads == 0


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_read(folder):
    door = Door(folder, max_body_bytes=500)
    body = json.dumps({"texts": ["good"] * 64}).encode()
    connection = Connection(body)

    asyncio.run(door.app(http_scope(body), connection.receive, connection.send))

    error = json.loads(connection.sent[1]["body"])["error"]
    assert (connection.sent[0]["status"], error["code"]) == (413, "body_too_large")
    assert "over the limit of 500 bytes" in error["message"]
    assert connection.num_reads == 0


def test_a_body_that_hides_its_length_is_read_no_further_than_the_limit(folder):
    door = Door(folder, max_body_bytes=500)
    connection = Connection(*[b"x" * 200] * 50)
    scope = http_scope()
    scope["headers"] = [(b"transfer-encoding", b"chunked")]

    asyncio.run(door.app(scope, connection.receive, connection.send))

    assert connection.sent[0]["status"] == 413
    assert connection.num_reads == 3


@pytest.mark.parametrize("length", [b"", b"-1", b"many", b"9" * 5000])
def test_an_odd_content_length_is_no_way_round_the_limit(folder, length):
    door = Door(folder, max_body_bytes=500)
    connection = Connection(b"x" * 501)
    scope = http_scope()
    scope["headers"] = [(b"content-length", length)]

    asyncio.run(door.app(scope, connection.receive, connection.send))

    assert connection.sent[0]["status"] == 413


def test_a_body_in_pieces_is_put_together(door):
    connection = Connection(b'{"te', b'xt": "go', b"", b'od"}')

    asyncio.run(door.app(http_scope(b"x" * 16), connection.receive, connection.send))

    assert json.loads(connection.sent[1]["body"])["num_tokens"] == 3


@pytest.mark.parametrize("value", ["", "0", "-5", "1.5", "1e3", "abc", "9" * 9, "٣"])
def test_an_unusable_deadline_is_refused(door, value):
    response = door.predict({"text": "good"}, headers={"X-Deadline-Ms": value.encode()})

    error = response.json()["error"]
    assert (response.status_code, error["field"]) == (400, "X-Deadline-Ms")
    assert door.lanes["short"].asked == []


def test_a_deadline_ends_the_wait_and_drops_the_work(door):
    door.lanes["short"].hold()

    response = door.predict({"text": "good"}, headers={"X-Deadline-Ms": "20"})

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (504, "deadline_exceeded")
    assert "within 0.02 s" in error["message"]
    assert door.lanes["short"].was_cancelled


def test_a_deadline_cannot_be_longer_than_the_services_own(folder):
    door = Door(folder, request_timeout_s=0.02, batch_wait_timeout_ms=0)
    door.lanes["short"].hold()

    response = door.predict({"text": "good"}, headers={"X-Deadline-Ms": "60000"})

    assert response.status_code == 504


async def leave_while_waiting(door, body):
    for lane in door.lanes.values():
        lane.hold()
    connection = Connection(body)
    task = asyncio.create_task(door.app(http_scope(body), connection.receive, connection.send))
    while not any(lane.asked for lane in door.lanes.values()):
        await asyncio.sleep(0)
    connection.leave()
    await task
    return connection


@pytest.mark.parametrize("body", [b'{"text": "good"}', b'{"texts": ["good", "bad"]}'])
def test_the_work_of_a_client_that_left_is_dropped_at_once(door, body):
    connection = asyncio.run(leave_while_waiting(door, body))

    assert door.lanes["short"].was_cancelled
    assert connection.sent == []
    assert (door.record.status, door.record.code) == (499, "client_gone")


def test_a_client_that_left_gives_its_place_back(folder):
    door = Door(folder, max_queued_requests=1, max_batch_requests=1, max_texts_per_request=1)

    async def scenario():
        await leave_while_waiting(door, b'{"text": "good"}')
        door.lanes["short"].release()
        async with door.connect() as client:
            return await client.post(PREDICT, json={"text": "good"})

    assert asyncio.run(scenario()).status_code == 200


def test_a_client_that_leaves_in_the_middle_of_its_body_is_not_answered(door):
    connection = Connection()
    connection.leave()

    asyncio.run(door.app(http_scope(b"x"), connection.receive, connection.send))

    assert connection.sent == []
    assert door.record.code == "client_gone"


def test_a_server_that_ends_is_not_taken_for_a_client_that_left(door):
    async def scenario():
        door.lanes["short"].hold()
        connection = Connection(b'{"text": "good"}')
        task = asyncio.create_task(door.app(http_scope(), connection.receive, connection.send))
        while not door.lanes["short"].asked:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())

    assert door.lanes["short"].was_cancelled


class Lines(logging.Handler):
    """Keeps log records."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def lines():
    logger, handler = logging.getLogger("test.requests"), Lines()
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def logged_door(folder, **options):
    return Door(folder, observers=[RequestLog(logging.getLogger("test.requests"))], **options)


def test_one_line_for_each_request_has_its_id_and_stage_times(folder, lines):
    door = logged_door(folder)

    door.predict({"text": "good"}, headers={"X-Request-ID": "mine"})

    (line,) = lines.records
    assert (line.request_id, line.status, line.code, line.lane) == ("mine", 200, "ok", "short")
    assert (line.queue_ms, line.session_ms, line.batch_rows) == (1.5, 2.5, 4)
    assert 0.0 < line.tokenise_ms < line.total_ms
    assert line.version == door.version
    assert line.getMessage().startswith("request mine POST /v1/predict 200 ok ")


def test_texts_are_in_the_line_only_if_asked_for(folder, lines):
    logged_door(folder).predict({"text": "good secret"})
    logged_door(folder, logs_texts=True).predict({"texts": ["good", 7]})

    without, with_texts = lines.records
    assert "secret" not in str(vars(without))
    assert with_texts.texts == ["good", "7"]


def test_an_unexpected_failure_has_its_traceback_in_the_line(folder, lines):
    door = logged_door(folder)
    door.lanes["short"].outcome = object()

    response = door.predict({"text": "good"})

    (line,) = lines.records
    assert (response.status_code, line.levelno, line.code) == (500, logging.ERROR, "internal_error")
    assert line.exc_info[1] is not None


@pytest.mark.parametrize(
    ("headers", "level"),
    [({"X-Deadline-Ms": "5"}, logging.WARNING), ({"X-Deadline-Ms": "x"}, logging.INFO)],
)
def test_level_of_a_line_follows_whose_fault_it_was(folder, lines, headers, level):
    door = logged_door(folder)
    door.lanes["short"].hold()

    door.predict({"text": "good"}, headers=headers)

    (line,) = lines.records
    assert (line.levelno, line.exc_info) == (level, None)


def test_ids_stay_with_their_requests_under_load(folder, lines):
    door = logged_door(folder)

    async def all_at_once():
        async with door.connect() as client:
            posts = (
                client.post(
                    PREDICT,
                    json={"text": "the " * (index % 12 + 1)},
                    headers={"X-Request-ID": f"id-{index}"},
                )
                for index in range(200)
            )
            return await asyncio.gather(*posts)

    answers = asyncio.run(all_at_once())

    assert [answer.json()["request_id"] for answer in answers] == [f"id-{i}" for i in range(200)]
    tokens = {line.request_id: line.num_tokens for line in lines.records}
    assert tokens == {f"id-{index}": index % 12 + 3 for index in range(200)}
    for lane in door.lanes.values():
        for row in lane.rows:
            assert len(row.input_ids) == tokens[row.request_id]
