"""Steps that survive running out of memory: fewer rows in a forward pass, then the same step."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from pipeline.contract.errors import TrainingError
from pipeline.train.group import Group
from pipeline.train.micro_batches import MicroBatch, split_micro_batches
from pipeline.train.out_of_memory import (
    OutOfMemory,
    Shortage,
    record_allocations,
    write_memory_report,
)
from pipeline.train.step import Optimisation, StepResult, train_step


class StepRunner:
    """Runs steps with as many rows in a forward pass as memory has proved to hold.

    The limit only slices: the gradient stays that of the whole batch (Composer's automatic
    microbatching does the same, https://docs.mosaicml.com/projects/composer, "Auto
    Microbatching"). It never grows again, so a run that goes on with the limit of its checkpoint
    cuts every batch as an unbroken one does.
    """

    micro_batch: int
    """Rows at most in one forward pass now."""

    def __init__(
        self,
        state: Optimisation,
        *,
        group: Group,
        micro_batch: int,
        on_out_of_memory: Callable[[str, int], None],
        report_dir: Path | None = None,
    ) -> None:
        """Allocate what the optimiser keeps, so that only passes can run out of memory.

        Args:
            state: restored already, if it goes on from a checkpoint.
            group: this worker's rank and its sums over all ranks.
            micro_batch: rows at most in one forward pass, from the settings or a checkpoint.
            on_out_of_memory: called on every rank with a sentence and the new limit.
            report_dir: where the lowest rank that ran out writes what its memory held; it is
                given to every rank that reaches the folder. None writes nothing.
        """
        self.micro_batch = micro_batch
        self._state, self._group = state, group
        self._on_out_of_memory, self._report_dir = on_out_of_memory, report_dir
        state.allocate_optimizer()
        record_allocations(state.device)

    def run(
        self, micro_batches: Sequence[MicroBatch], *, begin: Callable[[], None], step: int
    ) -> StepResult:
        """Run one step on this rank's part of a global batch, again and again until it fits.

        Every rank must call it with the same step.

        Args:
            micro_batches: best on the CPU; each is moved to the device for its own pass.
            begin: seeds the step; called before every try.
            step: for messages and the names of reports.

        Raises:
            TrainingError: not even one row fits, or a loss or a gradient is not finite; on every
                rank, before the weights change.
        """
        while True:
            begin()
            try:
                return train_step(
                    self._state,
                    split_micro_batches(micro_batches, self.micro_batch),
                    group=self._group,
                )
            except OutOfMemory as error:
                failed = error
            self._back_off(failed, step=step)

    def _back_off(self, failed: OutOfMemory, *, step: int) -> None:
        worst = min(failed.shortages, key=lambda shortage: shortage.rows)
        is_first = bool(failed.shortages) and self._group.rank == failed.shortages[0].rank
        if is_first and failed.report and self._report_dir:
            write_memory_report(self._report_dir, failed.report, step=step)
        if worst.rows == 1:
            raise row_too_large(worst, when=f"in step {step}")
        limit = halve_below(self.micro_batch, worst.rows)
        if _has_batch_norm(self._state.model):
            raise _cannot_split(worst, step=step, limit=limit)
        self.micro_batch = limit
        message = describe_retry(worst, when=f"in step {step}", limit=limit)
        self._on_out_of_memory(message, limit)


def halve_below(limit: int, rows: int) -> int:
    """Return the limit halved as often as it takes to split a pass of this many rows (2 or more).

    Example: limit 32; 32 rows did not fit -> 16, 5 rows did not fit -> 4.
    """
    while limit >= rows:
        limit //= 2
    return limit


def describe_retry(shortage: Shortage, *, when: str, limit: int) -> str:
    """Return a sentence for people, without a full stop.

    Args:
        shortage: of the rank that had least room.
        when: in which step or measurement, such as ``in step 3``.
        limit: rows in a pass at most from now on.
    """
    return f"{_describe(shortage, when=when)}; repeated with at most {limit} in a pass"


def row_too_large(shortage: Shortage, *, when: str) -> TrainingError:
    """Return the error for a row that does not fit alone; ``when`` as above."""
    return TrainingError(
        f"{_describe(shortage, when=when)}, and a row cannot be divided",
        place=f"row {shortage.row_id}",
        remedy="Lower model.max_seq_len, take a smaller model, or run on a device with more "
        "memory.",
    )


def _describe(shortage: Shortage, *, when: str) -> str:
    wanted = f"{shortage.wanted_bytes / 1e6:.1f} MB wanted, " if shortage.wanted_bytes else ""
    return (
        f"memory ran out {when} on rank {shortage.rank}: {wanted}"
        f"{shortage.there_bytes / 1e6:.1f} MB there, in a pass of {shortage.rows} rows of "
        f"{shortage.longest} tokens"
    )


def _cannot_split(shortage: Shortage, *, step: int, limit: int) -> TrainingError:
    return TrainingError(
        f"{_describe(shortage, when=f'in step {step}')}, and with BatchNorm fewer rows in a "
        "pass would give another result",
        place="train.micro_batch",
        remedy=f"Set it to {limit}: BatchNorm is then replaced by GroupNorm.",
    )


def _has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
