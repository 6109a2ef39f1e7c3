"""What the device's memory holds: torch's own figures on CUDA, the machine's on a CPU."""

import resource
from dataclasses import dataclass
from pathlib import Path

import torch

_ROOT = Path("/")


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
    pages = int((_ROOT / "proc/self/statm").read_text(encoding="ascii").split()[1])
    return MemoryReading(
        allocated_bytes=pages * resource.getpagesize(),
        reserved_bytes=None,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def reset_peak(device: torch.device) -> None:
    """Begin a new peak; a CPU process has only one for its whole life."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def available_bytes(device: torch.device, *, root: Path = _ROOT) -> int:
    """Return what this process can still allocate.

    On CUDA: free memory of the device and what torch holds of it without using it. On a CPU:
    what the machine has available, or what is left of a control group's limit if that is less.

    Args:
        device: the device.
        root: folder in which ``proc`` and ``sys`` are found.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + unused)
    machine = _field(root / "proc/meminfo", "MemAvailable:") * 1024
    return min([machine, *_left_in_control_groups(root)])


def _left_in_control_groups(root: Path) -> list[int]:
    """Return what each control group of this process still allows, outer ones included.

    https://docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/memory.html: the page cache
    counts as use, but the kernel takes inactive files back before it lets a process fail.
    """
    left: list[int | None] = []
    mount = root / "sys/fs/cgroup"
    for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names = ("memory.max", "memory.current", "inactive_file")
            top = mount
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            top = mount / "memory"
        else:
            continue
        own = top / path.strip("/")
        # A container may see its group at the top and be told the path outside.
        folders = [folder for folder in (own, *own.parents) if folder.is_relative_to(top)]
        left.extend(_left_in(folder, *names) for folder in folders)
    return [value for value in left if value is not None]


def _left_in(folder: Path, limit: str, use: str, cache: str) -> int | None:
    if not (folder / limit).is_file():
        return None
    allowed = (folder / limit).read_text(encoding="ascii").strip()
    if allowed == "max":
        return None
    used = int((folder / use).read_text(encoding="ascii"))
    return max(int(allowed) - used + _field(folder / "memory.stat", cache), 0)


def _field(path: Path, name: str) -> int:
    lines = path.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == name)
