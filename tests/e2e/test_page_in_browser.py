"""The page at `/` in headless Chromium, which has no other address to ask than the server's."""

from urllib.parse import quote

import numpy as np
import pytest
from browser import CHROMIUM, render
from bundles import TOKEN, write_tiny_bundle
from door import Door

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def test_a_text_is_shown_with_label_scores_lane_version_and_times(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder)

    shown = render(door.app, f"/#{quote('good film is fun')}", tmp_path)

    assert '<div class="label">positive<small>88.1 %</small></div>' in shown
    for word in ("negative", "11.9 %", "short", door.version, "model run 2.5 ms", "queue 1.5 ms"):
        assert word in shown
    assert 'class="ready">ready<' in shown


def test_an_error_is_shown_with_its_code_and_message(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder)

    shown = render(door.app, f"/#{quote('a' * 201)}", tmp_path)

    assert "413 · text_too_long" in shown
    assert "201 characters are over the limit of 200" in shown


def test_tags_in_a_text_are_shown_and_not_obeyed(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle", task=TOKEN).folder)
    for lane in door.lanes.values():
        lane.logits_of = lambda num_tokens: np.tile(
            np.array([0, 3, 0], np.float32), (num_tokens, 1)
        )

    shown = render(door.app, f"/#{quote('😀 Anna <img src=x onerror=alert(1)>')}", tmp_path)

    assert ">Anna<sub>PER</sub></mark>" in shown
    assert "<img" not in shown


def test_the_docs_show_every_operation_and_body(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder)

    shown = render(door.app, "/docs", tmp_path)

    document = door.send("GET", "/openapi.json").json()
    for path in document["paths"]:
        assert f"<code>{path}</code>" in shown
    for name in document["components"]["schemas"]:
        assert f'id="{name}"' in shown
    assert "too_many_tokens" in shown
    assert "A film to see twice." in shown
