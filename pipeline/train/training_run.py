"""One training as every worker gets it, and what is due after each of its steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import JobConfig
from pipeline.data.augment import Augmentation
from pipeline.model.architecture import Architecture
from pipeline.model.checkpoint_manifest import FINAL, PERMANENT, ROLLING
from pipeline.train.memory import MemoryLedger
from pipeline.train.schedule import Schedule, build_schedule


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """One training; it can be pickled."""

    job: JobConfig
    architecture: Architecture
    shards_dir: Path
    checkpoint_dir: Path
    """Has its manifest already; all workers must reach it (shared storage on a cluster)."""
    pretrained: Path | None
    epoch_steps: tuple[int, ...]
    """Optimiser steps of each epoch."""
    num_validation_rows: int
    augmentation: Augmentation | None
    facts: dict[str, Any]
    """Fingerprints and versions, kept in every checkpoint."""
    deciding: dict[str, Any]
    """Every setting and input that decides what is learned, kept in the manifest."""
    memory: MemoryLedger | None = None
    """What each worker needs; None leaves out the look at the device before the first step."""

    @property
    def total_steps(self) -> int:
        """Optimiser steps of all epochs."""
        return sum(self.epoch_steps)

    @property
    def schedule(self) -> Schedule:
        """What decides the learning rate of every step."""
        return build_schedule(self.job.train, total_steps=self.total_steps)

    def is_validated(self, step: int) -> bool:
        """Return whether the validation rows are measured after a step.

        They are after the last step too, so that the final weights have a figure.
        """
        every = self.job.train.validate_every_steps
        if every == 0 or not self.num_validation_rows:
            return False
        ends = np.cumsum(self.epoch_steps)
        return step == ends[-1] or (step % every == 0 if every else step in ends)

    def place_in_epoch(self, step: int) -> int:
        """Return how many steps of its epoch are done after a step; 0 before the first."""
        ends = np.cumsum(self.epoch_steps)
        epoch = int(np.searchsorted(ends, step, side="left"))
        return step - int(ends[epoch - 1] if epoch else 0)

    def checkpoint_kind(self, step: int, *, is_last: bool, is_best: bool) -> str | None:
        """Return the kind of checkpoint that is due after a step, None for none.

        Args:
            step: steps done.
            is_last: no step comes after it.
            is_best: no measurement of the validation rows was as good before.
        """
        if is_last:
            return FINAL
        if step % self.job.train.permanent_every_steps == 0:
            return PERMANENT
        is_due = step % self.job.train.checkpoint_every_steps == 0
        return ROLLING if is_due or is_best else None
