"""A small server that gives the pages which `textlane doctor` reads."""

import json
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cluster.doctor import examination
from cluster.doctor.scraping import Scraper

METRICS = (
    'ray_textlane_requests_total{path="/v1/predict",outcome="ok",lane="short"} 9\n'
    'ray_textlane_setting{setting="haproxy",lane="none"} 1\n'
    'ray_other{SessionName="session_7"} 1\n'
)
MODEL = {"version": "tiny-1/model.onnx", "quality": {"accuracy": {"model.onnx": 0.9}}}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        if "X-API-Key" in self.headers:
            self.server.keys.append(self.headers["X-API-Key"])
        status, text = self.server.pages.get(self.path, (404, ""))
        body = text if isinstance(text, bytes) else text.encode()
        head = f"HTTP/1.1 {status} \r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for part, drop_s in ((head, self.server.head_drop_s), (body, self.server.drop_s)):
            step = len(part) if drop_s == 0 else 1
            for place in range(0, len(part), step or 1):
                time.sleep(drop_s)
                try:
                    self.wfile.write(part[place : place + step])
                except OSError:
                    return  # The client has given up.

    def log_message(self, *_arguments):
        """Keep the test's output clean."""


@pytest.fixture
def site(monkeypatch):
    """A service that is ready, with its metrics; its pages may be replaced.

    Nobody waits between two looks.
    """
    monkeypatch.setattr(examination, "Scraper", partial(Scraper, sleep=lambda _seconds: None))
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.keys = []
        server.drop_s = server.head_drop_s = 0
        server.pages = {
            "/metrics": (200, METRICS),
            "/readyz": (200, "{}"),
            "/v1/model": (200, json.dumps(MODEL)),
        }
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
