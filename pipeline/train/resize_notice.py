"""Has a checkpoint written before Ray starts the workers anew in another number."""

import time
from pathlib import Path

from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2._internal.execution.controller.state import ResizingState, TrainControllerState

_WAIT_S = 60.0
_LOOK_EVERY_S = 0.1


class SaveBeforeResize(ControllerCallback):
    """Leaves a mark for the workers and holds Ray's controller until they have saved.

    Ray 2.60 has no public hook for it, and without one a resize throws away all steps since
    the last checkpoint.
    """

    def __init__(self, mark: Path) -> None:
        """Take the mark, a file where all workers reach it; they remove it."""
        self._mark = mark

    def after_controller_state_update(
        self, previous_state: TrainControllerState, current_state: TrainControllerState
    ) -> None:
        """Wait for the checkpoint, at most a minute; workers that hang may not block Ray."""
        if not isinstance(current_state, ResizingState):
            return
        self._mark.touch()
        deadline_s = time.monotonic() + _WAIT_S
        while self._mark.exists() and time.monotonic() < deadline_s:
            time.sleep(_LOOK_EVERY_S)
        self._mark.unlink(missing_ok=True)
