"""How running out of memory is recognised, told to all ranks, and kept for people."""

import gc
import pickle
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from pipeline.contract.folder import write_text_atomically
from pipeline.train.device_memory import available_bytes, read_memory
from pipeline.train.group import Group
from pipeline.train.micro_batches import MicroBatch

_SIGNS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)
"""What torch says in a plain RuntimeError; its own type is raised by the CUDA allocator alone."""
_WANTED = re.compile(r"ried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_RECORDED_EVENTS = 20_000


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """A pass that did not fit on one rank."""

    rank: int
    rows: int
    longest: int
    """Tokens of a padded row."""
    row_id: int
    """The pass's first row."""
    wanted_bytes: int
    """The allocation that failed; 0 where the message does not tell."""
    there_bytes: int
    """Free on the device at that moment."""


@dataclass(frozen=True, kw_only=True)
class MemoryReport:
    """What the device's memory held when it ran out."""

    text: str
    snapshot: dict[str, Any] | None
    """Of torch's CUDA allocator, for https://pytorch.org/memory_viz; None on a CPU."""


class OutOfMemory(Exception):
    """Some rank's passes did not fit; raised on every rank, before the weights change."""

    def __init__(self, shortages: Sequence[Shortage], report: MemoryReport | None) -> None:
        """Keep every rank's shortages, in rank order, and this rank's own report, if any."""
        super().__init__(shortages)
        self.shortages, self.report = list(shortages), report


@dataclass(frozen=True, kw_only=True)
class FailedPass:
    """This rank's shortage and its report."""

    shortage: Shortage
    report: MemoryReport


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error says that an allocation failed.

    On Linux a CPU allocation fails only at a limit of address space or of overcommitment;
    at a container's limit the kernel kills the process without an error.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def record_allocations(device: torch.device) -> None:
    """Keep the last allocations on a CUDA device and where they were made, for the report.

    Costs about 2 µs for each (PyTorch docs, "Understanding CUDA Memory Usage").
    """
    if device.type == "cuda":
        torch.cuda.memory._record_memory_history(
            max_entries=_RECORDED_EVENTS, stacks="python", device=device
        )


def describe_failure(
    error: BaseException, micro: MicroBatch, *, rank: int, device: torch.device
) -> FailedPass:
    """Return what is known of a pass that did not fit; call it before anything is freed."""
    found = _WANTED.search(str(error))
    wanted = round(float(found[1]) * _UNITS[found[2]]) if found else 0
    rows, longest = micro.input_ids.shape
    shortage = Shortage(
        rank=rank,
        rows=rows,
        longest=longest,
        row_id=micro.row_ids[0],
        wanted_bytes=wanted,
        there_bytes=available_bytes(device),
    )
    place = f"rank {rank}, {rows} rows of {longest} tokens"
    text = f"{place}\n{error}\n\n{_memory_text(device)}\n"
    is_cuda = device.type == "cuda"
    snapshot = torch.cuda.memory._snapshot(device) if is_cuda else None
    return FailedPass(shortage=shortage, report=MemoryReport(text=text, snapshot=snapshot))


def free_caches(device: torch.device) -> None:
    """Give unused memory back, that of the failed pass's dead reference cycles included."""
    # They are young; to look through all that Python holds takes half a second.
    gc.collect(1)
    if device.type == "cuda":
        torch.cuda.empty_cache()


def gather_shortages(failed: FailedPass | None, group: Group) -> OutOfMemory:
    """Return the error that every rank raises; each must call this."""
    own = list(astuple(failed.shortage)) if failed else []
    found, names = group.gather(own), [field.name for field in fields(Shortage)]
    parts = [found[start : start + len(names)] for start in range(0, len(found), len(names))]
    shortages = [Shortage(**dict(zip(names, part, strict=True))) for part in parts]
    return OutOfMemory(shortages, failed.report if failed else None)


def write_memory_report(folder: Path, report: MemoryReport, *, step: int) -> None:
    """Write ``out_of_memory_step_N.txt`` and, on CUDA, the allocator's snapshot beside it."""
    path = folder / f"out_of_memory_step_{step}.txt"
    write_text_atomically(path, report.text)
    if report.snapshot is not None:
        # The name that torch.cuda.memory._dump_snapshot's readers expect is .pickle.
        path.with_suffix(".pickle").write_bytes(pickle.dumps(report.snapshot))


def _memory_text(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.memory_summary(device))
    now = read_memory(device)
    return (
        f"resident {now.allocated_bytes} bytes, at most so far {now.peak_bytes} bytes, "
        f"available {available_bytes(device)} bytes"
    )
