"""A lane whose session waits at a gate and writes down what it ran; replicas import it."""

import os
import time
from pathlib import Path

from serve_app.lane import Lane

GATE, RUNS = "gate", "runs"


class GatedSession:
    """Waits while the gate's file names this process or all."""

    def __init__(self, session, folder):
        self.session, self.folder = session, folder

    def score_group(self, rows):
        with (self.folder / RUNS).open("a") as runs:
            runs.write(f"{os.getpid()} {[len(row) for row in rows]}\n")
        while self.is_shut():
            time.sleep(0.01)
        return self.session.score_group(rows)

    def is_shut(self):
        gate = self.folder / GATE
        return gate.is_file() and gate.read_text() in {"all", str(os.getpid())}


class GatedLane(Lane):
    """The real lane around such a session; gate and runs lie beside the bundle."""

    def __init__(self, settings, **facts):
        super().__init__(settings, **facts)
        folder = Path(settings.bundle).parent
        self._batcher._session = GatedSession(self._batcher._session, folder)
