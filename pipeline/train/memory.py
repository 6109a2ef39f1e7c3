"""The memory ledger: what training takes on each worker, and whether the device has it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from pipeline.contract.errors import TrainingError
from pipeline.train.activations import DeviceType, PassMemory, measure_pass
from pipeline.train.device_memory import available_bytes
from pipeline.train.step import Precision

_ADAMW_VALUES = 2
"""AdamW keeps two values for each weight: the means of the gradient and of its square."""


@dataclass(frozen=True, kw_only=True)
class MemoryLedger:
    """Bytes on each worker."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    autocast_bytes: int
    """Half-precision copies of the weights during a forward pass."""
    activations_bytes: int | None
    """Of the worst forward and backward pass; None if the model could not be measured."""
    one_row_bytes: int | None
    """The same with a single row."""
    rows: int
    """Of the worst pass."""
    seq_len: int
    """Tokens of its rows."""
    unknown_because: str | None
    """Why the activations are None."""

    @property
    def total_bytes(self) -> int:
        """Sum of all entries that are known."""
        return self._fixed_bytes + (self.activations_bytes or 0)

    @property
    def _fixed_bytes(self) -> int:
        return (
            self.parameters_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.autocast_bytes
        )

    def rows_within(self, limit_bytes: int) -> int:
        """Return the most rows, up to the ledger's own, whose pass fits; 0 if none does.

        A pass takes the most of what its moments take, each of which grows evenly with the
        rows; so the straight line between one row and all rows is never too low.
        """
        left = limit_bytes - self._fixed_bytes
        if self.activations_bytes is None or self.one_row_bytes is None:
            return self.rows if left >= 0 else 0
        if left < self.one_row_bytes:
            return 0
        slope = (self.activations_bytes - self.one_row_bytes) / max(self.rows - 1, 1)
        more = (left - self.one_row_bytes) / slope if slope > 0 else self.rows
        return min(self.rows, 1 + int(more))


def build_memory_ledger(
    model: nn.Module,
    *,
    precision: Precision,
    rows: int,
    seq_len: int,
    device_type: DeviceType = "cpu",
) -> MemoryLedger:
    """Return the ledger of a model trained by AdamW.

    Example: 110 million fp32 parameters -> 440 + 440 + 880 MB, and the activations.

    Args:
        model: on any device, also ``meta``; left as it is.
        precision: of the forward pass.
        rows: of the worst pass of one worker.
        seq_len: tokens of its rows.
        device_type: where the run is to be.
    """
    measure = partial(
        measure_pass, model, precision=precision, seq_len=seq_len, device_type=device_type
    )
    size = sum(parameter.nbytes for parameter in model.parameters())
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    one: PassMemory | None = None
    worst: PassMemory | None = None
    because = None
    try:
        one, worst = measure(rows=1), measure(rows=rows)
    except Exception as error:  # A model of the user's may raise anything; it is said.
        because = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return MemoryLedger(
        parameters_bytes=size + buffers,
        gradients_bytes=size,
        optimizer_bytes=_ADAMW_VALUES * size,
        autocast_bytes=worst.autocast_bytes if worst else 0,
        activations_bytes=worst.activations_bytes if worst else None,
        one_row_bytes=one.activations_bytes if one and worst else None,
        rows=rows,
        seq_len=seq_len,
        unknown_because=because,
    )


def describe_memory(ledger: MemoryLedger) -> str:
    """Return the ledger in one line of megabytes (10**6 bytes)."""
    shape = f"{ledger.rows} rows of {ledger.seq_len} tokens"
    entries = [
        ("parameters", ledger.parameters_bytes),
        ("gradients", ledger.gradients_bytes),
        ("optimiser", ledger.optimizer_bytes),
        ("autocast copies", ledger.autocast_bytes),
        (f"activations of {shape}", ledger.activations_bytes or 0),
    ]
    named = [f"{name} {_megabytes(size)}" for name, size in entries if size]
    line = f"{' + '.join(named)} = {_megabytes(ledger.total_bytes)} MB"
    if ledger.unknown_because is not None:
        line += f", activations on top (not known: {ledger.unknown_because})"
    return line


def check_memory(
    ledger: MemoryLedger,
    device: torch.device,
    num_local_workers: int,
    *,
    available: Callable[[torch.device], int] = available_bytes,
) -> None:
    """Refuse a training that does not fit; call it before the model is put on the device.

    What torch, Ray and the interpreter take by themselves is in use already and so not counted.

    Args:
        ledger: of one worker.
        device: of this worker.
        num_local_workers: on this machine; they share its memory if the device is a CPU.
        available: reads the bytes that can still be allocated.

    Raises:
        TrainingError: with both numbers and the largest micro-batch that fits.
    """
    is_shared = device.type == "cpu" and num_local_workers > 1
    there = available(device) // (num_local_workers if is_shared else 1)
    if ledger.total_bytes <= there:
        return
    rows = ledger.rows_within(there)
    whose = f"each of {num_local_workers} workers" if is_shared else "a worker"
    raise TrainingError(
        f"training takes {_megabytes(ledger.total_bytes)} MB ({describe_memory(ledger)}), but "
        f"{whose} can have {_megabytes(there)} MB on {device}",
        place="train.micro_batch",
        remedy=f"Set train.micro_batch to {rows} or lower."
        if rows
        else "Not even one row fits: lower model.max_seq_len, take a smaller model, or give each "
        "worker more memory.",
    )


def _megabytes(size: int) -> str:
    value = size / 1e6
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"
