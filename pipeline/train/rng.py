"""States of the random generators that a step may draw from."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def capture_rng(device: torch.device) -> dict[str, Any]:
    """Return the states of Python's, numpy's and torch's generators, plain values and tensors.

    ``cuda`` is the device's own generator, None on a CPU.
    """
    numpy_state: Any = np.random.get_state(legacy=True)
    kind, keys, *rest = numpy_state
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_rng(saved: dict[str, Any], device: torch.device) -> None:
    """Put captured states back; that of a CUDA device only if both times there is one."""
    version, values, gauss = saved["python"]
    random.setstate((version, tuple(values), gauss))
    kind, keys, *rest = saved["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(saved["torch"])
    if device.type == "cuda" and saved["cuda"] is not None:
        torch.cuda.set_rng_state(saved["cuda"], device)


@contextmanager
def keep_rng(device: torch.device) -> Iterator[None]:
    """Leave all generators as they were before the block, whatever it draws."""
    saved = capture_rng(device)
    try:
        yield
    finally:
        restore_rng(saved, device)
