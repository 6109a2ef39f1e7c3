"""Test doubles with known formulas, injected by argument."""

import asyncio

import numpy as np

from pipeline.contract.errors import InferenceError
from serve_app.lane_call import LaneAnswer


class FakeLane:
    """Scores a row ``[0, tokens - threshold]``; keeps what it was asked."""

    def __init__(self, version="fake/model.onnx", *, threshold=4.0):
        self.served_version = version
        self.threshold = threshold
        self.asked = []
        self.rows = []
        self.failing_ids = set()
        self.outcome = None
        self.is_held = asyncio.Event()
        self.release()
        self.was_cancelled = False

    def hold(self):
        """Let no answer out until :meth:`release`."""
        self.is_held.clear()

    def release(self):
        """Let answers out."""
        self.is_held.set()

    async def score(self, row):
        self.rows.append(row)
        self.asked.append(row.input_ids.tolist())
        try:
            await self.is_held.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.outcome is not None:
            return self.answer(self.outcome)
        if self.failing_ids & set(row.input_ids.tolist()):
            return self.answer(InferenceError("the model failed on this text"))
        return self.answer(self.logits_of(len(row.input_ids)))

    def logits_of(self, num_tokens):
        """Return the logits of a row; other tasks have another formula."""
        return np.array([0.0, num_tokens - self.threshold], dtype=np.float32)

    def answer(self, outcome):
        """Return an outcome with the figures that every answer of this lane has."""
        return LaneAnswer(outcome=outcome, queue_ms=1.5, session_ms=2.5, batch_rows=4)

    async def version(self):
        return self.served_version


class FakeObserver:
    """Keeps the record of every request."""

    def __init__(self):
        self.records = []

    def observe_request(self, record):
        self.records.append(record)


class FakeFeedbackDesk:
    """Knows some versions' manifests, and keeps what it is told."""

    def __init__(self, versions):
        self.versions = versions
        self.taken = []

    def find_version(self, version):
        return self.versions.get(version)

    def add_feedback(self, feedback):
        self.taken.append(feedback)
