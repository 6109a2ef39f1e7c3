"""Test doubles with known formulas, injected by argument."""

import asyncio

import numpy as np

from pipeline.contract.errors import InferenceError


class FakeLane:
    """Scores a row ``[0, tokens - threshold]``; keeps what it was asked."""

    def __init__(self, version="fake/model.onnx", *, threshold=4.0):
        self.served_version = version
        self.threshold = threshold
        self.asked = []
        self.failing_ids = set()
        self.is_held = asyncio.Event()
        self.release()
        self.was_cancelled = False

    def hold(self):
        """Let no answer out until :meth:`release`."""
        self.is_held.clear()

    def release(self):
        """Let answers out."""
        self.is_held.set()

    async def score(self, input_ids):
        self.asked.append(input_ids.tolist())
        try:
            await self.is_held.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.failing_ids & set(input_ids.tolist()):
            return InferenceError("the model failed on this text")
        return np.array([0.0, len(input_ids) - self.threshold], dtype=np.float32)

    async def version(self):
        return self.served_version


class FakeObserver:
    """Keeps (path, status) of every request."""

    def __init__(self):
        self.seen = []

    def observe_request(self, *, path, status, latency_s):
        assert latency_s >= 0.0
        self.seen.append((path, status))
