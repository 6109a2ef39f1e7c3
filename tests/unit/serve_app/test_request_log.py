"""The log line of a request: what it says and when."""

import asyncio
import logging

import pytest
from bundles import write_tiny_bundle
from door import PREDICT, Door

from serve_app.request_log import RequestLog


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("frame") / "bundle").folder


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


@pytest.mark.slow
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
