"""500 generated inputs: none is a fault of the service, and the good ones among them stay right."""

import asyncio
import json
import random

import numpy as np
import pytest
from bundles import TOKEN, write_tiny_bundle
from door import PREDICT, Door
from hostile import draw_bodies, draw_body, draw_value

from serve_app.error_answers import ERROR_KINDS

NUM_INPUTS = 500
GOOD = {"good film is fun": 6, "the " * 10: 12, "Anna lives in Oslo": 6}


async def send_in_waves(door, bodies):
    """Return the answers, in order; so few at once that none is refused for the others' sake."""
    answers = []
    async with door.connect() as client:
        for start in range(0, len(bodies), 20):
            posts = (client.post(PREDICT, content=b) for b in bodies[start : start + 20])
            answers += await asyncio.gather(*posts)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"task": TOKEN}, {"takes_pairs": True}], ids=str)
def test_no_input_is_a_fault_of_the_service(tmp_path, options):
    door = Door(write_tiny_bundle(tmp_path / "bundle", **options).folder)
    if options.get("task") == TOKEN:
        for lane in door.lanes.values():
            lane.logits_of = lambda num_tokens: np.zeros((num_tokens, 3), dtype=np.float32)
    bodies = draw_bodies(NUM_INPUTS, seed=20261202)

    answers = asyncio.run(send_in_waves(door, bodies))

    codes = {kind.code for kind in ERROR_KINDS.values()}
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.status_code < 500, (body[:200], answer.text)
        parsed = answer.json()
        assert answer.status_code == 200 or parsed["error"]["code"] in codes
        assert len(answer.content) < 100_000 or answer.status_code == 200
    assert {200, 400, 413} <= {answer.status_code for answer in answers}


@pytest.mark.slow
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
