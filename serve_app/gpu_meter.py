"""How busy the GPU of a process is, as NVIDIA's driver tells it (NVML)."""

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any

_logger = logging.getLogger("ray.serve")


class GpuMeter:
    """Reads one GPU."""

    def __init__(self, nvml: Any, device: Any) -> None:
        """Take the module ``pynvml``, initialised, and its handle of a GPU."""
        self._nvml, self._device = nvml, device

    def read_utilisation(self) -> float | None:
        """Return the share of the last moment in which the GPU computed, 0 to 1.

        NVML counts over a sixth of a second to a second. None where it has no figure, as for
        a slice of a GPU (MIG).
        """
        try:
            rates = self._nvml.nvmlDeviceGetUtilizationRates(self._device)
        except self._nvml.NVMLError:
            return None
        return float(rates.gpu) / 100.0


def open_gpu_meter(gpu_ids: Sequence[int | str], *, nvml: Any = None) -> GpuMeter | None:
    """Return the meter of the first of a process's GPUs; None where there is none to read.

    Args:
        gpu_ids: NVML's indices or UUIDs; a session uses the first.
        nvml: stands in for the module ``pynvml``, which the extra ``gpu`` installs.
    """
    if not gpu_ids:
        return None
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            _logger.warning("GPU utilisation is not reported: pip install 'textlane[gpu]'")
            return None
    gpu = str(gpu_ids[0])
    try:
        nvml.nvmlInit()
        if gpu.isdecimal():
            return GpuMeter(nvml, nvml.nvmlDeviceGetHandleByIndex(int(gpu)))
        return GpuMeter(nvml, nvml.nvmlDeviceGetHandleByUUID(gpu))
    except nvml.NVMLError as error:
        _logger.warning("GPU utilisation of %s is not reported: %s", gpu, error)
        return None
