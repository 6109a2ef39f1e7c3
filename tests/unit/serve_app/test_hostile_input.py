"""500 generated inputs: none is a fault of the service, and the good ones among them stay right."""

import asyncio
import json
import random

import numpy as np
import pytest
from bundles import TOKEN, write_tiny_bundle
from door import PREDICT, Door

from serve_app.error_answers import ERROR_KINDS

NUM_INPUTS = 500
GOOD = {"good film is fun": 6, "the " * 10: 12, "Anna lives in Oslo": 6}
NAUGHTY = [
    "undefined",
    "null",
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    "{{7*7}}",
    "%s%n%x",
    "\u202e\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u200b\u200c\u2060\ufeff",
    "Z\u0351\u036b\u0343a\u0322l\u0334g\u0321o",
    "👩‍👩‍👧‍👦🇪🇺",
    "\x00good\x00",
    "\x1b[31mred\x07",
    "\ufffe\uffff",
    "[CLS] [SEP] [MASK] [PAD]",
    "﷽" * 50,
    "a" * 200,
    "a" * 201,
    "\r\n" * 20,
    "𝕲𝖔𝖔𝖉",
    "NaN",
    "-1e999",
    "good " * 39,
]
VALUES = [None, True, 0, -1, 1.5, 1e308, "", [], {}, [[]], {"text": "x"}, "good", ["good"], 2**70]
RAW = [
    b"",
    b" ",
    b"{",
    b"nul",
    b"[]",
    b"\xef\xbb\xbf{}",
    b'{"text": "\xff\xfe"}',
    b'{"text": "\\ud800"}',
    b'{"text": "\\udc00\\ud800"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "a" "b"}',
    b'{"text": "a", "text": 7}',
    b'{"text": NaN}',
    b'{"text": "\x00"}',
    b"[" * 100_000,
    b'{"texts":' * 20_000,
    b'{"texts": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b'{"text": "' + b"a" * 5_000_000 + b'"}',
    b'{"texts": [' + b'"a",' * 900_000 + b'"a"]}',
    b'{"scores": ' + b"9" * 100_000 + b"}",
    '{"text": "good"}'.encode("utf-16"),
    b'{"words": [' + b"1," * 1_000_000 + b"1]}",
    b"{" + b",".join(b'"k%d":0' % index for index in range(200_000)) + b"}",
    b'{"' + b"t" * 3_000_000 + b'": 1}',
    b'{"texts": [' + b'{"a":{}},' * 300_000 + b"1]}",
]


def draw_text(draw):
    pool = [
        "a",
        " ",
        "\x00",
        "\t",
        "é",
        "\u202e",
        "\u200d",
        "\U0001f600",
        "\ud7ff",
        "\ue000",
        "<b>",
    ]
    return "".join(draw.choice(pool) for _ in range(draw.randrange(0, 260)))


def draw_value(draw, depth=0):
    kind = draw.randrange(6)
    if kind == 0 and depth < 20:
        return [draw_value(draw, depth + 1) for _ in range(draw.randrange(3))]
    if kind == 1 and depth < 20:
        return {draw.choice(NAUGHTY): draw_value(draw, depth + 1)}
    if kind == 2:
        return draw_text(draw)
    if kind == 3:
        return draw.choice(NAUGHTY)
    return draw.choice(VALUES)


def draw_body(draw):
    """Return the bytes of one request; most are wrong in one place, some are merely odd."""
    kind = draw.randrange(10)
    if kind == 0:
        return draw.choice(RAW)
    if kind == 1:
        return bytes(draw.randrange(256) for _ in range(draw.randrange(200)))
    if kind == 2:
        return json.dumps(draw_value(draw)).encode()
    if kind == 3:
        pair = {"text": draw.choice(NAUGHTY), "text_pair": draw.choice(["good", draw_text(draw)])}
        return json.dumps(pair).encode()
    if kind == 4:
        return json.dumps({"text": draw.choice([*NAUGHTY, draw_text(draw)])}).encode()
    if kind == 5:
        return json.dumps({"texts": [draw_value(draw) for _ in range(draw.randrange(70))]}).encode()
    if kind == 6:
        whole = json.dumps({"text": "good", "scores": True}).encode()
        return whole[: draw.randrange(len(whole))]
    fields = ("text", "texts", "words", "text_pair", "scores", "top_k", "timings", "txt")
    chosen = draw.sample(fields, draw.randrange(1, 4))
    return json.dumps({name: draw_value(draw) for name in chosen}, ensure_ascii=kind == 7).encode()


async def send_in_waves(door, bodies):
    """Return the answers, in order; so few at once that none is refused for the others' sake."""
    answers = []
    async with door.connect() as client:
        for start in range(0, len(bodies), 20):
            posts = (client.post(PREDICT, content=b) for b in bodies[start : start + 20])
            answers += await asyncio.gather(*posts)
    return answers


@pytest.mark.parametrize("options", [{}, {"task": TOKEN}, {"takes_pairs": True}], ids=str)
def test_no_input_is_a_fault_of_the_service(tmp_path, options):
    door = Door(write_tiny_bundle(tmp_path / "bundle", **options).folder)
    if options.get("task") == TOKEN:
        for lane in door.lanes.values():
            lane.logits_of = lambda num_tokens: np.zeros((num_tokens, 3), dtype=np.float32)
    draw = random.Random(20261202)
    bodies = [*RAW, *(draw_body(draw) for _ in range(NUM_INPUTS - len(RAW)))]

    answers = asyncio.run(send_in_waves(door, bodies))

    codes = {kind.code for kind in ERROR_KINDS.values()}
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status_code < 500, (body[:200], answer.text)
        parsed = answer.json()
        assert answer.status_code == 200 or parsed["error"]["code"] in codes
        assert len(answer.content) < 100_000 or answer.status_code == 200
    assert {200, 400, 413} <= {answer.status_code for answer in answers}


def test_good_requests_among_hostile_ones_are_answered_right(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder)
    draw = random.Random(1)
    bodies = []
    for index in range(NUM_INPUTS):
        text = list(GOOD)[index % len(GOOD)]
        bodies += [json.dumps({"text": text}).encode(), draw_body(draw)]

    answers = asyncio.run(send_in_waves(door, bodies))[::2]

    assert {answer.status_code for answer in answers} == {200}
    for index, answer in enumerate(answers):
        num_tokens = list(GOOD.values())[index % len(GOOD)]
        expected = "positive" if num_tokens > 4 else "negative"
        assert (answer.json()["num_tokens"], answer.json()["label"]) == (num_tokens, expected)


def test_good_texts_of_a_list_are_answered_right_beside_hostile_ones(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder)
    draw = random.Random(2)

    for _ in range(20):
        hostile = [draw_value(draw) for _ in range(31)]
        texts = [
            text for pair in zip(["good film is fun"] * 31, hostile, strict=True) for text in pair
        ]
        response = door.predict({"texts": texts})

        assert response.status_code == 200
        assert {answer["num_tokens"] for answer in response.json()["answers"][::2]} == {6}
