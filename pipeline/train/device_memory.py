"""What the device's memory holds: torch's own figures on CUDA, the process's on a CPU."""

import resource
from dataclasses import dataclass
from pathlib import Path

import torch

_STATUS = Path("/proc/self/statm")


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """Bytes at one moment."""

    allocated_bytes: int
    """CUDA tensors; on a CPU the process's resident memory."""
    reserved_bytes: int | None
    """Held by torch's CUDA allocator, used or not; None on a CPU."""
    peak_bytes: int
    """Most allocated since :func:`reset_peak`; on a CPU since the process began."""


def read_memory(device: torch.device) -> MemoryReading:
    """Return this process's figures for a device."""
    if device.type == "cuda":
        return MemoryReading(
            allocated_bytes=torch.cuda.memory_allocated(device),
            reserved_bytes=torch.cuda.memory_reserved(device),
            peak_bytes=torch.cuda.max_memory_allocated(device),
        )
    pages = int(_STATUS.read_text(encoding="ascii").split()[1])
    return MemoryReading(
        allocated_bytes=pages * resource.getpagesize(),
        reserved_bytes=None,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def reset_peak(device: torch.device) -> None:
    """Begin a new peak; a CPU process has only one for its whole life."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
