"""The client side of the demo, against a small real HTTP server."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from cluster.traffic import is_ready, send_texts
from pipeline.contract.errors import CommandError

pytestmark = pytest.mark.slow


class Answers(BaseHTTPRequestHandler):
    pages: ClassVar = {}

    def do_GET(self):
        self._answer(self.pages[self.path], {})

    def do_POST(self):
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        if text == "fail":
            self._answer(503, {"error": "full"})
        else:
            self._answer(200, {"label": text.upper()})

    def _answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        """Keep the test's output clean."""


@pytest.fixture
def base_url():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_every_text_is_sent_and_right_answers_are_counted(base_url):
    figures = send_texts(base_url, ["a", "b", "c"], labels=["A", "B", "wrong"])

    assert (figures.num_requests, figures.num_correct) == (3, 2)
    assert 0 < figures.p50_ms <= figures.p99_ms


def test_an_answer_other_than_200_stops_with_its_text(base_url):
    with pytest.raises(CommandError, match=r"answered 503: .*full"):
        send_texts(base_url, ["a", "fail"], labels=None)


def test_a_server_that_is_gone_stops_with_its_address():
    with pytest.raises(CommandError, match=r"127\.0\.0\.1:9/v1/predict: the server stopped answ"):
        send_texts("http://127.0.0.1:9", ["a"], labels=None)


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False), (404, False)])
def test_a_server_is_ready_as_readyz_says(base_url, monkeypatch, status, expected):
    monkeypatch.setattr(Answers, "pages", {"/readyz": status, "/healthz": 200})

    assert is_ready(base_url) is expected


def test_where_nothing_listens_nobody_is_ready():
    assert not is_ready("http://127.0.0.1:9")
