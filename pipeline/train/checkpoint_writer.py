"""Writes checkpoints in a thread, so that the loop waits only for a copy of the state."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from pipeline.contract.errors import FolderError
from pipeline.train.checkpoint import CheckpointLabel, save_checkpoint

_LOGGER = logging.getLogger(__name__)


class CheckpointWriter:
    """At most one checkpoint is being written; the next waits for it.

    What goes wrong in the thread is raised by the next call of any method.
    """

    def __init__(self, folder: Path, *, keep: int) -> None:
        """Write into a checkpoint folder, of rolling ones ``keep`` at a time."""
        self._folder, self._keep = folder, keep
        self._copier = _Copier()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-writer")
        self._pending: Future[Path] | None = None

    def submit(self, state: dict[str, Any], label: CheckpointLabel) -> None:
        """Copy a state and have it written; the caller may change its tensors at once.

        Raises:
            FolderError: the checkpoint before could not be written.
        """
        self.finish()
        copied = self._copier.copy(state)
        self._pending = self._thread.submit(
            save_checkpoint, self._folder, copied, label, keep=self._keep
        )

    def check(self) -> None:
        """Raise what went wrong with a checkpoint that is no longer being written.

        Raises:
            FolderError: it could not be written.
        """
        if self._pending and self._pending.done():
            self.finish()

    def finish(self) -> None:
        """Wait until nothing is being written.

        Raises:
            FolderError: the checkpoint could not be written.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
        except Exception as error:
            # Not a TrainingError: only this rank knows of it, and the others wait for it.
            raise FolderError(
                f"a checkpoint could not be written: {error}",
                place=str(self._folder),
                remedy="Make room or mend the folder and run the same command again; it goes on "
                "from the last good checkpoint.",
            ) from error

    def __enter__(self) -> "CheckpointWriter":
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the last checkpoint, also when the training failed: it is work done.

        Raises:
            FolderError: it could not be written and nothing else went wrong.
        """
        try:
            self.finish()
        except FolderError as not_written:
            if error is None:
                raise
            _LOGGER.error("%s", not_written)
        finally:
            self._thread.shutdown()


class _Copier:
    """Copies states into memory that it keeps for the next copy.

    Fresh memory costs more than the copy: page faults on a CPU, page locking for CUDA, where
    locked memory is several times as fast. Into kept memory a copy moves fewer bytes than the
    optimiser's part of a step does. The most that is held is the same: one copy.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._is_locked = False

    def copy(self, state: dict[str, Any]) -> dict[str, Any]:
        copied: dict[str, Any] = self._copy(state, "")
        if self._is_locked:
            torch.cuda.synchronize()
        return copied

    def _copy(self, value: Any, place: str) -> Any:
        if isinstance(value, dict):
            return {key: self._copy(inner, f"{place}/{key}") for key, inner in value.items()}
        if isinstance(value, list):
            return [self._copy(inner, f"{place}/{at}") for at, inner in enumerate(value)]
        if not isinstance(value, Tensor):
            return value
        kept = self._kept.get(place)
        if kept is None or (kept.shape, kept.dtype) != (value.shape, value.dtype):
            is_cuda = value.device.type == "cuda"
            kept = torch.empty(value.shape, dtype=value.dtype, pin_memory=is_cuda)
            self._kept[place], self._is_locked = kept, self._is_locked or is_cuda
        return kept.copy_(value.detach(), non_blocking=True)
