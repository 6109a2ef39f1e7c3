"""Request bodies that nobody should send, made from a seed."""

import json
import random

STRANGE = (
    "",
    " \t\n",
    "\0",
    "a\0b",
    "\u202egood\u202c",
    "مرحبا film جيد",
    "\ufeffgood",
    "\u200bgood\u200d",
    "e\u0301" * 50,
    "👩‍👩‍👧‍👦" * 20,
    "\U0010ffff",
    "<script>alert(1)</script>",
    "'; DROP TABLE films; --",
    "../../etc/passwd",
    "{{7*7}} ${7*7} %s %n",
    "[CLS] good [SEP] [PAD] [MASK]",
    "\x1b[31mred\x1b[0m",
    "\r\nHTTP/1.1 200 OK\r\n\r\n",
    "nan",
    "null",
    "-1e400",
    "a" * 5_000,
)
WRONG = (None, True, 0, -1, 1.5, 1e308, [], {}, [[]], [None], {"a": 1}, ["good", 3], [""])
NAMES = ("text", "texts", "words", "text_pair", "top_k", "scores", "timings", "", "Text", "x" * 300)
RAW = (
    b"",
    b"{",
    b"[]",
    b'"text"',
    b"null",
    b"\xff\xfe\x00",
    b'{"text": "\xff"}',
    b'{"text": "\\ud800"}',
    b'{"text": "\\udfff\\ud800"}',
    b'{"text": "good", "text": 3}',
    b'{"text": NaN}',
    b'{"text": "good"} x',
    b'{"text": ' + b"[" * 100_000,
    b"[" * 200_000 + b"]" * 200_000,
    b'{"texts": [' + b'"good",' * 100_000 + b'"bad"]}',
    b'{"text": "' + b"a" * 5_000_000 + b'"}',
    b'{"top_k": ' + b"9" * 5_000 + b', "text": "good"}',
)


def make_bodies(count, *, seed):
    """Return bodies: the raw ones, then objects of strange names and values."""
    rng = random.Random(seed)
    bodies = list(RAW)
    while len(bodies) < count:
        if rng.random() < 0.4:  # Strange, but a text.
            bodies.append(json.dumps({"text": rng.choice(STRANGE)}).encode())
            continue
        fields = {}
        for _ in range(rng.randint(1, 3)):
            value = rng.choice((rng.choice(WRONG), rng.choice(STRANGE)))
            if rng.random() < 0.2:
                value = [value, rng.choice(STRANGE)]
            fields[rng.choice(NAMES)] = value
        bodies.append(json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode())
    return bodies
