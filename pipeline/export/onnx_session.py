"""Opens ONNX Runtime sessions as plain functions: arrays in, logits out."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError

INPUT_NAMES = ("input_ids", "attention_mask")
OUTPUT_NAME = "logits"

LogitsFunction = Callable[[IntArray, IntArray], NDArray[np.float32]]
"""``input_ids, attention_mask`` (``int64 [batch, seq]`` both) → ``logits`` float32."""


def usable_cpus() -> int:
    """Return the CPUs that this process may run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_model(path: Path, *, num_threads: int | None = None) -> LogitsFunction:
    """Return a model file as a function; ``num_threads`` None takes all usable CPUs.

    Raises:
        ExportError: ONNX Runtime refuses the file.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or usable_cpus()
    options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's own types share no base of their own
        raise ExportError(
            f"ONNX Runtime cannot load the model: {error}", place=path.name
        ) from error

    def run(input_ids: IntArray, attention_mask: IntArray) -> NDArray[np.float32]:
        feeds = dict(zip(INPUT_NAMES, (input_ids, attention_mask), strict=True))
        return np.asarray(session.run([OUTPUT_NAME], feeds)[0], dtype=np.float32)

    return run
