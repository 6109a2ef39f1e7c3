"""The road of a request, with lanes of a known formula in place of Ray."""

import asyncio

import pytest
from bundles import FAILING_WORD, VOCABULARY, write_tiny_bundle
from fakes import FakeLane

from pipeline.contract.errors import (
    DeadlineError,
    InferenceError,
    NotReadyError,
    OverloadedError,
    TooManyTextsError,
)
from serve_app.config import ServeSettings
from serve_app.request_record import RequestRecord
from serve_app.schemas import PredictRequest
from serve_app.served import open_served
from serve_app.service import PredictService

SHORT, LONG = "good film", "the " * 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("service") / "bundle").folder


def build_service(folder, **options):
    served = open_served(ServeSettings(bundle=str(folder), **options))
    lanes = {"short": FakeLane(served.version), "long": FakeLane(served.version)}
    service = PredictService(served, encoder=served.bundle.load_text_encoder(), lanes=lanes)
    return service, lanes


def new_record(service, *, timeout_s=None):
    timeout_s = timeout_s or service.served.limits.request_timeout_s
    return RequestRecord(path="/", method="POST", request_id="mine", timeout_s=timeout_s)


async def ask(service, **fields):
    return (await service.predict(PredictRequest(**fields), new_record(service))).outcomes


def predict(service, **fields):
    return asyncio.run(ask(service, **fields))


def test_each_text_goes_to_its_lane_and_answers_keep_the_order(folder):
    service, lanes = build_service(folder)

    answers = predict(service, texts=[LONG, SHORT, LONG])

    assert [answer.lane for answer in answers] == ["long", "short", "long"]
    assert [answer.num_tokens for answer in answers] == [12, 4, 12]
    assert (len(lanes["short"].asked), len(lanes["long"].asked)) == (1, 2)


def test_a_pair_is_scored_as_one_row(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle", takes_pairs=True)
    service, lanes = build_service(bundle.folder)

    (answer,) = predict(service, text="good film", text_pair="bad")

    words = ("[CLS]", "good", "film", "[SEP]", "bad", "[SEP]")
    assert lanes["short"].asked == [[VOCABULARY.index(word) for word in words]]
    assert answer.num_tokens == 6


def test_a_failing_text_of_a_list_is_named_and_fails_alone(folder):
    service, lanes = build_service(folder)
    lanes["short"].failing_ids = {VOCABULARY.index(FAILING_WORD)}

    first, failed = predict(service, texts=["good", FAILING_WORD])

    assert first.label == "negative"
    assert (type(failed), failed.place) == (InferenceError, "texts[1]")


def test_rows_carry_the_request_id_one_key_and_the_time_that_is_left(folder):
    service, lanes = build_service(folder)
    predict(service, texts=["good", "bad"])

    rows = lanes["short"].rows
    assert {row.request_id for row in rows} == {"mine"}
    assert len({row.key for row in rows}) == 1
    assert all(25.0 < row.timeout_s < 30.0 for row in rows)


def test_a_record_has_the_figures_of_its_request(folder):
    service, _ = build_service(folder)
    record = new_record(service)

    asyncio.run(service.predict(PredictRequest(texts=[SHORT, LONG, "the " * 40]), record))

    assert (record.num_texts, record.num_tokens, record.num_truncated) == (3, 4 + 12 + 16, 1)
    assert (record.lane, record.queue_ms, record.session_ms) == ("both", 1.5, 2.5)
    assert record.tokenise_ms > 0.0
    assert record.texts is None


def test_texts_of_a_list_that_are_late_fail_beside_those_that_are_not(folder):
    service, lanes = build_service(folder, batch_wait_timeout_ms=0, request_timeout_s=0.05)

    async def scenario():
        lanes["long"].hold()
        return await ask(service, texts=[SHORT, LONG])

    quick, late = asyncio.run(scenario())

    assert quick.label == "negative"
    assert (type(late), late.place) == (DeadlineError, "texts[1]")
    assert lanes["long"].was_cancelled


@pytest.mark.parametrize("kind", [OverloadedError, NotReadyError, DeadlineError])
def test_a_list_that_the_service_let_down_as_a_whole_fails_as_a_whole(folder, kind):
    service, lanes = build_service(folder)
    lanes["short"].outcome = kind("no")

    with pytest.raises(kind) as caught:
        predict(service, texts=["good", "bad"])

    assert caught.value.place is None


def test_a_list_of_which_one_text_got_through_is_answered(folder):
    service, lanes = build_service(folder)
    lanes["long"].outcome = OverloadedError("full")

    first, second = predict(service, texts=[SHORT, LONG])

    assert first.label == "negative"
    assert (type(second), second.place) == (OverloadedError, "texts[1]")


def test_a_cancelled_list_is_cancelled_in_its_lanes(folder):
    service, lanes = build_service(folder)

    async def scenario():
        lanes["short"].hold()
        lanes["long"].hold()
        task = asyncio.create_task(ask(service, texts=[SHORT, LONG]))
        while not (lanes["short"].asked and lanes["long"].asked):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())

    assert lanes["short"].was_cancelled
    assert lanes["long"].was_cancelled


def test_more_texts_than_allowed_are_refused_with_both_numbers(folder):
    service, _ = build_service(folder, max_texts_per_request=2)

    with pytest.raises(TooManyTextsError, match="3 texts are over the limit of 2"):
        predict(service, texts=["a", "b", "c"])


def test_texts_over_the_admission_limit_are_refused_and_later_ones_are_not(folder):
    service, lanes = build_service(
        folder, max_batch_requests=2, max_queued_requests=2, max_texts_per_request=2
    )

    async def scenario():
        lanes["short"].hold()
        first = asyncio.create_task(ask(service, texts=["good", "bad"]))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError, match="2 texts are in hand, 1 more would pass 2"):
            await ask(service, text="fun")
        lanes["short"].release()
        return await first, await ask(service, text="fun")

    held, later = asyncio.run(scenario())

    assert (len(held), len(later)) == (2, 1)


def test_late_answer_is_given_up_and_its_work_cancelled(folder):
    service, lanes = build_service(folder, batch_wait_timeout_ms=0, request_timeout_s=0.01)

    async def scenario():
        lanes["short"].hold()
        with pytest.raises(DeadlineError, match=r"no answer within 0.01 s"):
            await ask(service, text=SHORT)

    asyncio.run(scenario())

    assert lanes["short"].was_cancelled


def test_refused_and_late_requests_give_their_places_back(folder):
    service, lanes = build_service(
        folder,
        max_batch_requests=1,
        max_queued_requests=1,
        max_texts_per_request=1,
        batch_wait_timeout_ms=0,
        request_timeout_s=0.01,
    )

    async def scenario():
        lanes["short"].hold()
        for _ in range(3):
            with pytest.raises(DeadlineError):
                await ask(service, text=SHORT)

    asyncio.run(scenario())


def test_check_passes_when_both_lanes_serve_this_version(folder):
    service, _ = build_service(folder)

    asyncio.run(service.check())


def test_check_names_the_lane_that_serves_another_version(folder):
    service, lanes = build_service(folder)
    lanes["long"].served_version = "other"

    with pytest.raises(NotReadyError, match="the long lane serves another version"):
        asyncio.run(service.check())


def test_large_requests_are_answered_too(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle", max_text_chars=20_000)
    service, _ = build_service(bundle.folder)

    (answer,) = predict(service, text="good " * 3000)

    assert (answer.lane, answer.is_truncated) == ("long", True)
