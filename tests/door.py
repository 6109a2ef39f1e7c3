"""The HTTP application in this process, with lanes of a known formula behind it."""

import asyncio
import json

import httpx
from fakes import FakeFeedbackDesk, FakeLane, FakeObserver

from serve_app.config import ServeSettings
from serve_app.http_app import HttpApp
from serve_app.served import open_served
from serve_app.service import PredictService
from serve_app.versions import Versions

PREDICT = "/v1/predict"


class Door:
    """Sends requests to the application; nothing of Ray, no socket."""

    def __init__(self, folder, *, api_keys=(), logs_texts=False, observers=(), **settings):
        served = open_served(ServeSettings(bundle=str(folder), **settings))
        self.version = served.version
        self.lanes = {"short": FakeLane(served.version), "long": FakeLane(served.version)}
        self.service = PredictService(
            served,
            encoder=served.bundle.load_text_encoder(),
            lanes=self.lanes,
            logs_texts=logs_texts,
        )
        self.observer = FakeObserver()
        self.versions = Versions(self.service)
        self.feedback = FakeFeedbackDesk({self.version: served.bundle.manifest})
        self.app = HttpApp(
            self.versions,
            observers=[self.observer, *observers],
            api_keys=api_keys,
            feedback=self.feedback,
        )

    @property
    def record(self):
        """The record of the last request."""
        return self.observer.records[-1]

    def send(self, method, path, **options):
        """Return the answer to one request."""

        async def call():
            async with self.connect() as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def predict(self, body, **options):
        """Return the answer to a prediction; bytes go as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", PREDICT, content=content, **options)

    def connect(self):
        """Return a client for requests that overlap."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
        return httpx.AsyncClient(transport=transport, base_url="http://test")


def http_scope(body=b"", *, path=PREDICT, method="POST", headers=(), root_path=""):
    """Return the ASGI scope of one request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": root_path,
        "scheme": "http",
        "headers": [(b"content-length", b"%d" % len(body)), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }


class Connection:
    """One ASGI connection whose other end the test holds."""

    def __init__(self, *chunks):
        self._chunks = list(chunks)
        self._is_gone = asyncio.Event()
        self.num_reads = 0
        self.sent = []

    def leave(self):
        """Close the connection from the client's side."""
        self._is_gone.set()

    async def receive(self):
        self.num_reads += 1
        if self._chunks:
            body = self._chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self._chunks)}
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)
