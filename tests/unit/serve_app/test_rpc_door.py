"""Predictions over gRPC: the same fields, limits, answers and errors as over HTTP."""

import asyncio
import random
import re
from pathlib import Path

import grpc
import numpy as np
import pytest
from bundles import MULTI_LABEL, TOKEN, write_tiny_bundle
from hostile import NAUGHTY, draw_text
from rpc_call import FakeContext, RpcCaller

from pipeline.contract.errors import InferenceError, NotReadyError
from serve_app import schemas
from serve_app.error_answers import ERROR_KINDS
from serve_app.rpc import predict_pb2
from serve_app.rpc.door import STATUS_CODES
from serve_app.rpc.predict_pb2 import PredictRequest
from serve_app.rpc.predictor import PREDICT_METHOD, SERVICE

KEY = "a-key-of-16-chars"
PROTO = Path(predict_pb2.__file__).with_name("predict.proto")
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("rpc") / "bundle").folder


@pytest.fixture
def caller(folder):
    return RpcCaller(folder)


def as_json(answer):
    """Return an answer as HTTP would give it, absent fields left out."""
    fields = {}
    for field, value in answer.ListFields():
        if field.name in ("top", "labels", "words"):
            value = [as_json(item) for item in value]
        elif field.name == "scores":
            value = dict(value)
        elif field.name == "timings":
            value = as_json(value)
        fields[field.name] = value
    return fields


def without_defaults(body):
    """Return a JSON answer without what a message does not tell from absent."""
    if isinstance(body, dict):
        kept = {k: v for k, v in body.items() if v is not None and v is not False and v != []}
        return {k: without_defaults(v) for k, v in kept.items()}
    return [without_defaults(item) for item in body] if isinstance(body, list) else body


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({}, {"text": "good film"}),
        ({}, {"text": "good film", "scores": True, "top_k": 2}),
        ({}, {"texts": ["good", "", "the " * 20], "scores": True}),
        ({"takes_pairs": True}, {"text": "good", "text_pair": "film", "top_k": 1}),
        ({"task": TOKEN}, {"words": ["Anna", "lives", "in", "Oslo"]}),
        ({"task": TOKEN}, {"text": "Anna lives in Oslo"}),
        ({"task": MULTI_LABEL}, {"text": "good", "scores": True, "top_k": 1}),
    ],
    ids=str,
)
def test_answers_are_those_of_http(tmp_path, options, body):
    caller = RpcCaller(write_tiny_bundle(tmp_path / "bundle", **options).folder)
    shape = {TOKEN: lambda n: np.ones((n, 3)), MULTI_LABEL: lambda n: np.array([0.0, n, -n])}
    for lane in caller.door.lanes.values():
        lane.logits_of = shape.get(options.get("task"), lane.logits_of)

    expected = caller.door.predict(body, headers={"X-Request-ID": "one"}).json()
    answer, context = caller.call(PredictRequest(**body), request_id="one")

    assert context.code is None
    assert (answer.request_id, answer.version) == ("one", expected["version"])
    assert len(answer.answers) == len(body.get("texts", ["one"]))
    given = [as_json(one.answer) or as_json(one.error) for one in answer.answers]
    items = expected.get("answers", [expected])
    items = [one.get("error", one) for one in items]
    skipped = ("request_id", "version")
    assert given == [
        {k: v for k, v in without_defaults(item).items() if k not in skipped} for item in items
    ]


def test_timings_are_given_on_request(caller):
    answer, _ = caller.call(PredictRequest(text="good", timings=True))

    assert answer.answers[0].answer.timings.batch_rows == 4
    assert answer.answers[0].answer.timings.total_ms > 0


@pytest.mark.parametrize(
    ("message", "status", "code", "field"),
    [
        (PredictRequest(), Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (b"", Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (PredictRequest(text="a", texts=["b"]), Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (PredictRequest(text_pair="a"), Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (PredictRequest(text="good", top_k=0), Code.INVALID_ARGUMENT, "invalid_request", "top_k"),
        (
            PredictRequest(text="good", top_k=2**32 - 1),
            Code.INVALID_ARGUMENT,
            "invalid_request",
            "top_k",
        ),
        (b"\xff\xff\xff", Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (b"\x0a\x02\xff\xfe", Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (b"\x0a\x03\xed\xa0\x80", Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (b'{"text": "good"}', Code.INVALID_ARGUMENT, "invalid_request", "body"),
        (PredictRequest(words=["good"]), Code.INVALID_ARGUMENT, "invalid_request", "words"),
        (PredictRequest(text="a", text_pair="b"), Code.INVALID_ARGUMENT, "invalid_request", None),
        (PredictRequest(text=""), Code.INVALID_ARGUMENT, "empty_text", "text"),
        (PredictRequest(text="\x00\u200b"), Code.INVALID_ARGUMENT, "empty_text", "text"),
        (PredictRequest(text="a" * 201), Code.INVALID_ARGUMENT, "text_too_long", "text"),
        (PredictRequest(texts=["a"] * 65), Code.INVALID_ARGUMENT, "too_many_texts", "texts"),
        (PredictRequest(text="a" * 5_000_000), Code.INVALID_ARGUMENT, "body_too_large", "body"),
        (b"\x0a" + b"\xff" * 5_000_000, Code.INVALID_ARGUMENT, "body_too_large", "body"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_answered_is_told_by_status_and_metadata(
    caller, message, status, code, field
):
    answer, context = caller.call(message, request_id="one")

    assert answer == predict_pb2.PredictResponse()
    assert context.code is status
    assert context.details
    assert context.trailing["request_id"] == "one"
    assert context.trailing["error-code"] == code
    if field is not None:
        assert context.trailing["error-field"] == field
    assert caller.record.code == code
    assert caller.record.status in (400, 413)


def test_an_error_has_the_message_of_http(caller):
    error = caller.door.predict({"text": "a" * 201}).json()["error"]

    _, context = caller.call(PredictRequest(text="a" * 201))

    assert context.details == error["message"]


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (InferenceError("the model failed on this text"), Code.INTERNAL, "inference_failed"),
        (NotReadyError("a model replica was lost"), Code.UNAVAILABLE, "not_ready"),
    ],
)
def test_faults_of_the_service_have_their_status(caller, outcome, status, code):
    caller.door.lanes["short"].outcome = outcome

    _, context = caller.call(PredictRequest(text="good"))

    assert (context.code, context.trailing["error-code"]) == (status, code)
    assert ("retry-after" in context.trailing) == (status is Code.UNAVAILABLE)
    assert caller.record.failure is not None


def test_an_unforeseen_error_is_internal_and_says_nothing_of_the_inside(caller):
    caller.door.lanes["short"].logits_of = lambda _: 1 / 0

    _, context = caller.call(PredictRequest(text="good"))

    assert (context.code, context.trailing["error-code"]) == (Code.INTERNAL, "internal_error")
    assert "division" not in context.details
    assert isinstance(caller.record.failure, ZeroDivisionError)


def test_a_full_service_is_resource_exhausted(folder):
    caller = RpcCaller(folder, max_queued_requests=1, max_texts_per_request=1, max_batch_requests=1)
    caller.door.lanes["short"].hold()
    message = PredictRequest(text="good").SerializeToString()

    async def call_twice():
        first = asyncio.ensure_future(caller.rpc.predict(message, FakeContext()))
        await asyncio.sleep(0)
        context = FakeContext()
        await caller.rpc.predict(message, context)
        caller.door.lanes["short"].release()
        return context, await first

    context, first = asyncio.run(call_twice())

    assert (context.code, context.trailing["error-code"]) == (Code.RESOURCE_EXHAUSTED, "overloaded")
    assert int(context.trailing["retry-after"]) >= 1
    assert first.answers[0].answer.label


def test_a_deadline_in_metadata_holds(caller):
    caller.door.lanes["short"].hold()

    _, context = caller.call(PredictRequest(text="good"), x_deadline_ms="1")

    assert (context.code, context.trailing["error-code"]) == (
        Code.DEADLINE_EXCEEDED,
        "deadline_exceeded",
    )


def test_a_call_that_is_cancelled_drops_its_text(caller):
    lane = caller.door.lanes["short"]
    lane.hold()

    async def leave():
        message = PredictRequest(text="good").SerializeToString()
        call = asyncio.ensure_future(caller.rpc.predict(message, FakeContext()))
        while not lane.asked:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return call

    assert asyncio.run(leave()).cancelled()
    assert lane.was_cancelled
    assert (caller.record.status, caller.record.code) == (499, "client_gone")


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"request_id": "a" * 129}, "request_id"),
        ({"request_id": "a\tb"}, "request_id"),
        ({"x_deadline_ms": "0"}, "X-Deadline-Ms"),
        ({"x_deadline_ms": "soon"}, "X-Deadline-Ms"),
        ({"x_deadline_ms": b"\xff"}, "X-Deadline-Ms"),
        ({"x_deadline_ms": "9" * 99}, "X-Deadline-Ms"),
    ],
    ids=str,
)
def test_unusable_metadata_is_refused(caller, sent, field):
    _, context = caller.call(PredictRequest(text="good"), **sent)

    assert context.code is Code.INVALID_ARGUMENT
    assert context.trailing["error-field"] == field


def test_the_request_id_goes_to_the_lane_and_the_record(caller):
    caller.call(PredictRequest(text="good"), request_id="order 66/a")

    assert caller.door.lanes["short"].rows[0].request_id == "order 66/a"
    record = caller.record
    assert (record.request_id, record.path, record.method) == ("order 66/a", PREDICT_METHOD, "GRPC")
    assert (record.status, record.code, record.num_texts) == (200, "ok", 1)
    assert record.total_ms > 0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({}, Code.UNAUTHENTICATED),
        ({"x_api_key": "another"}, Code.UNAUTHENTICATED),
        ({"x_api_key": "é" * 5000}, Code.UNAUTHENTICATED),
        ({"x_api_key": KEY}, None),
        ({"authorization": f"Bearer {KEY}"}, None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_keys_are_asked_for_where_they_are_set(folder, sent, code):
    caller = RpcCaller(folder, api_keys=[KEY])

    _, context = caller.call(PredictRequest(text="good"), **sent)

    assert context.code is code


@pytest.mark.slow
def test_hostile_texts_and_bytes_are_never_a_fault_of_the_service(caller):
    draw = random.Random(20261203)
    messages = [PredictRequest(text=text).SerializeToString() for text in NAUGHTY]
    messages += [PredictRequest(texts=NAUGHTY).SerializeToString()]
    for _ in range(200):
        texts = [draw_text(draw) for _ in range(draw.randrange(1, 66))]
        whole = PredictRequest(texts=texts, top_k=draw.randrange(3)).SerializeToString()
        messages += [whole, whole[: draw.randrange(len(whole))]]
        messages.append(bytes(draw.randrange(256) for _ in range(draw.randrange(200))))

    codes = set()
    for message in messages:
        _, context = caller.call(message)
        codes.add(context.code)

    assert codes == {None, Code.INVALID_ARGUMENT}


def test_every_status_of_an_error_has_a_code():
    assert set(STATUS_CODES) >= {kind.status for kind in ERROR_KINDS.values()}


def test_generated_code_is_that_of_the_proto_file():
    text = re.sub(r"//.*", "", PROTO.read_text())
    written = {}
    for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, flags=re.M | re.S):
        written[name] = {f: int(n) for f, n in re.findall(r"(\w+) = (\d+);", body)}

    messages = predict_pb2.DESCRIPTOR.message_types_by_name
    assert written == {
        name: {field.name: field.number for field in message.fields}
        for name, message in messages.items()
    }
    assert set(predict_pb2.DESCRIPTOR.services_by_name) == {"Predictor"}
    assert predict_pb2.DESCRIPTOR.services_by_name["Predictor"].full_name == SERVICE


@pytest.mark.parametrize(
    ("message", "models"),
    [
        ("PredictRequest", [schemas.PredictRequest]),
        (
            "Answer",
            [schemas.SequenceAnswer, schemas.MultiLabelAnswer, schemas.TokenAnswer],
        ),
        ("Word", [schemas.WordAnswer]),
        ("LabelScore", [schemas.LabelAnswer]),
        ("Timings", [schemas.Timings]),
        ("ItemError", [schemas.ItemErrorDetail]),
    ],
)
def test_messages_have_the_fields_of_json(message, models):
    fields = set().union(*(model.model_fields for model in models))

    assert set(getattr(predict_pb2, message).DESCRIPTOR.fields_by_name) == fields
