"""Which CPUs compute 8-bit products exactly, read from what Linux says of them."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CPUINFO = Path("/proc/cpuinfo")
_VNNI_FLAGS = frozenset({"avx512_vnni", "avx_vnni"})
_X86 = frozenset({"x86_64", "amd64", "i386", "i686"})


def has_vnni(cpuinfo: str) -> bool:
    """Return whether every CPU in the text of ``/proc/cpuinfo`` has VNNI; False if none is named.

    Example: ``"flags : fpu avx2 avx512_vnni"`` -> True.
    """
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    flags = [set(value.split()) for key, _, value in lines if key.strip() == "flags"]
    return bool(flags) and all(found & _VNNI_FLAGS for found in flags)


def saturation_warning(
    int8: Mapping[str, Any] | None, *, cpuinfo: str | None = None, machine: str | None = None
) -> str | None:
    """Return what to tell people whose CPU may answer otherwise than the INT8 model was judged.

    x86 CPUs without VNNI add pairs of 8-bit products in 16 bits, which overflow unless the
    weights have 7 bits (ONNX Runtime, "Quantize ONNX Models", section on U8S8). ARM's do not.

    Args:
        int8: the manifest's ``quality.int8``; None: there is no INT8 model.
        cpuinfo: text of ``/proc/cpuinfo``; None reads it, where there is one.
        machine: as :func:`platform.machine`, which None asks.
    """
    if int8 is None or int8.get("reduce_range", True):
        return None
    if (machine or platform.machine()).lower() not in _X86:
        return None
    if cpuinfo is None:
        cpuinfo = _CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else ""
    if has_vnni(cpuinfo):
        return None
    return (
        "warning: the INT8 weights have 8 bits and this CPU is not known to have VNNI: products "
        "may overflow here, and the accuracy be less than the one that was measured"
    )
