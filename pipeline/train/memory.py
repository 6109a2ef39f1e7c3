"""The memory ledger: what the weights, their gradients and the optimiser take on each worker."""

from dataclasses import dataclass
from typing import Literal

_FP32_BYTES = 4
_HALF_BYTES = 2
_ADAMW_VALUES = 2
"""AdamW keeps two values for each weight: the means of the gradient and of its square."""


@dataclass(frozen=True, kw_only=True)
class MemoryLedger:
    """Bytes on each worker. Activations come on top: they grow with the micro-batch."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    autocast_bytes: int
    """Half-precision copies of the weights during a forward pass."""

    @property
    def total_bytes(self) -> int:
        """Sum of all entries."""
        return (
            self.parameters_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.autocast_bytes
        )


def build_memory_ledger(
    num_parameters: int, *, precision: Literal["fp32", "bf16", "fp16"]
) -> MemoryLedger:
    """Return the ledger of a model with fp32 weights trained by AdamW.

    Example: 110 million parameters in fp32 -> 440 + 440 + 880 MB.
    """
    return MemoryLedger(
        parameters_bytes=_FP32_BYTES * num_parameters,
        gradients_bytes=_FP32_BYTES * num_parameters,
        optimizer_bytes=_ADAMW_VALUES * _FP32_BYTES * num_parameters,
        autocast_bytes=0 if precision == "fp32" else _HALF_BYTES * num_parameters,
    )


def describe_memory(ledger: MemoryLedger) -> str:
    """Return the ledger in one line of megabytes (10**6 bytes)."""
    entries = [
        ("parameters", ledger.parameters_bytes),
        ("gradients", ledger.gradients_bytes),
        ("optimiser", ledger.optimizer_bytes),
        ("autocast copies", ledger.autocast_bytes),
    ]
    named = [f"{name} {size / 1e6:.0f}" for name, size in entries if size]
    return f"{' + '.join(named)} = {ledger.total_bytes / 1e6:.0f} MB, activations on top"
