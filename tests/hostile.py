"""Request bodies that nobody should send, drawn from a seed."""

import json
import random

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


def draw_bodies(count, *, seed):
    """Return all of ``RAW`` and, up to the count, what is drawn."""
    draw = random.Random(seed)
    return [*RAW, *(draw_body(draw) for _ in range(count - len(RAW)))]
