"""Who is told of a training's steps: files, TensorBoard, MLflow, Ray's metrics."""

from typing import Protocol

from pipeline.train.events import Event
from pipeline.train.history import StepRecord, ValidationRecord


class Observer(Protocol):
    """Told on rank 0 alone, in the order in which things happen."""

    def on_step(self, record: StepRecord) -> None:
        """Take one step's figures."""

    def on_validation(self, record: ValidationRecord) -> None:
        """Take one measurement of the validation rows."""

    def on_event(self, event: Event) -> None:
        """Take what people should know of."""

    def close(self) -> None:
        """Write out what is held; called once, whatever ended the training."""
