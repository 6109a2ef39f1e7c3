"""The machine that a tuning was measured on: its CPUs, and how many of them are ours."""

import math
import os
import platform
from importlib import metadata
from pathlib import Path

from pydantic import Field

from pipeline.contract.settings import Settings

_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")


class Machine(Settings):
    """What makes a tuning hold on one machine and not on another."""

    cpu: str
    """Model name of the CPU."""
    usable_cpus: int = Field(ge=1)
    """CPUs that this process may use, affinity and cgroup quota respected."""
    onnxruntime: str
    """Version of ONNX Runtime."""


def read_machine() -> Machine:
    """Return what this process runs on."""
    return Machine(cpu=read_cpu_name(), usable_cpus=usable_cpus(), onnxruntime=_runtime_version())


def usable_cpus(root: Path = Path("/")) -> int:
    """Return how many CPUs this process may use, at least 1.

    The affinity says which CPUs; a container's quota says how much time on them, and threads
    beyond it are held up. Half a CPU over a whole number is not counted.

    Args:
        root: folder under which ``proc`` and ``sys`` are looked up; another one in tests.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:  # macOS
        count = os.cpu_count() or 1
    return max(1, math.floor(min([float(count), *_read_quotas(root)])))


def read_cpu_name(root: Path = Path("/")) -> str:
    """Return the CPU's model name, or its architecture where Linux tells none."""
    for line in _read_lines(root / "proc" / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def _read_quotas(root: Path) -> list[float]:
    """Return the CPUs' worth of time of every cgroup that this process is in."""
    quotas = []
    for line in _read_lines(root / "proc" / "self" / "cgroup"):
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers:  # version 2
            folder, read = root / "sys/fs/cgroup", _read_v2
        elif "cpu" in controllers.split(","):
            folder, read = root / "sys/fs/cgroup/cpu", _read_v1
        else:
            continue
        below = Path(group.strip().lstrip("/"))
        # Any group above may be the one that limits.
        quotas += [quota for part in [below, *below.parents] if (quota := read(folder / part))]
    return quotas


def _read_v2(folder: Path) -> float | None:
    (line,) = _read_lines(folder / "cpu.max")[:1] or [""]
    return _share(*[*line.split(), "", ""][:2])


def _read_v1(folder: Path) -> float | None:
    (quota,) = _read_lines(folder / "cpu.cfs_quota_us")[:1] or [""]
    (period,) = _read_lines(folder / "cpu.cfs_period_us")[:1] or [""]
    return _share(quota, period)


def _share(quota: str, period: str) -> float | None:
    # No limit is "max" in version 2 and -1 in version 1.
    is_limit = quota.strip().isdecimal() and period.strip().isdecimal() and int(period) > 0
    return int(quota) / int(period) if is_limit and int(quota) > 0 else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # Not Linux, or another version of cgroups: then there is nothing to respect.
        return []


def _runtime_version() -> str:
    for name in _RUNTIMES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "none"
