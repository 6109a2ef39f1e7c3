"""The page at `/` in headless Chromium, which has no other address to ask than the server's."""

import shutil
import subprocess
import threading
import time
from urllib.parse import quote

import numpy as np
import pytest
import uvicorn
from bundles import TOKEN, write_tiny_bundle
from door import Door

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


class Served:
    """A server of the application, in a thread of this process."""

    def __init__(self, app):
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self._server.servers[0].sockets[0].getsockname()[1]

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()


def render(app, text, folder):
    """Return the page after a person opened it with a text, as Chromium shows it."""
    with Served(app) as port:
        command = [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            f"http://127.0.0.1:{port}/#{quote(text)}",
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def test_a_text_is_shown_with_label_scores_lane_version_and_times(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder)

    shown = render(door.app, "good film is fun", tmp_path)

    assert '<div class="label">positive<small>88.1 %</small></div>' in shown
    for word in ("negative", "11.9 %", "short", door.version, "model run 2.5 ms", "queue 1.5 ms"):
        assert word in shown
    assert 'class="ready">ready<' in shown


def test_an_error_is_shown_with_its_code_and_message(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle").folder)

    shown = render(door.app, "a" * 201, tmp_path)

    assert "413 · text_too_long" in shown
    assert "201 characters are over the limit of 200" in shown


def test_tags_in_a_text_are_shown_and_not_obeyed(tmp_path):
    door = Door(write_tiny_bundle(tmp_path / "bundle", task=TOKEN).folder)
    for lane in door.lanes.values():
        lane.logits_of = lambda num_tokens: np.tile(
            np.array([0, 3, 0], np.float32), (num_tokens, 1)
        )

    shown = render(door.app, "😀 Anna <img src=x onerror=alert(1)>", tmp_path)

    assert ">Anna<sub>PER</sub></mark>" in shown
    assert "<img" not in shown
