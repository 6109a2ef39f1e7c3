"""TensorBoard event files of a training, in its checkpoint folder."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event as Point
from tensorboardX.proto.event_pb2 import SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import text

from pipeline.train.events import Event
from pipeline.train.figures import FIGURES

TENSORBOARD_DIR = "tensorboard"
_TAGS = {figure.name: figure.tag for figure in FIGURES}
_FLUSH_S = 5.0
"""What a kill may lose. A flush waits for the disk (4 ms here), so it is not done each step."""


class TensorBoardSink:
    """Writes one event file for each start of the training.

    TensorBoard joins the files of a folder. A file begins with a mark that hides what the
    files before it have at its first step and later: what a killed training did beyond its
    checkpoint, and the resumed one does again. So no curve has a step twice.
    """

    def __init__(self, checkpoint_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Take the folder; the file is made with the first step."""
        self._folder, self._clock = checkpoint_dir / TENSORBOARD_DIR, clock
        self._writer: Any = None
        self._flushed_s = 0.0
        self._early: list[Event] = []

    def write_figures(self, figures: Mapping[str, float], *, step: int) -> None:
        """Add a point to each figure's curve."""
        if self._writer is None:
            self._open(first_step=step)
        values = [
            Summary.Value(tag=_TAGS[name], simple_value=value) for name, value in figures.items()
        ]
        self._write(step, summary=Summary(value=values))

    def write_event(self, event: Event) -> None:
        """Add a text; what comes before the first step waits for it, as the mark stands first."""
        if self._writer is None:
            self._early.append(event)
        else:
            self._write(event.step, summary=text(f"events/{event.kind}", event.message))

    def close(self) -> None:
        """Write out and close the file."""
        if self._writer is not None:
            self._writer.close()

    def _open(self, *, first_step: int) -> None:
        self._folder.mkdir(exist_ok=True)
        # The names hold whole seconds; two starts within one must not share a file.
        suffix = f".{self._clock():.6f}"
        self._writer = EventsWriter(str(self._folder / "events"), suffix)
        self._write(first_step, session_log=SessionLog(status=SessionLog.START))
        for event in self._early:
            self.write_event(event)

    def _write(self, step: int, **content: Any) -> None:
        now_s = self._clock()
        self._writer.write_event(Point(step=step, wall_time=now_s, **content))
        if now_s - self._flushed_s >= _FLUSH_S:
            self._writer.flush()
            self._flushed_s = now_s
