"""Opens ONNX Runtime sessions as plain functions: arrays in, logits out."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ConfigError, ExportError
from pipeline.contract.runtime_options import disabled_optimizers

INPUT_NAMES = ("input_ids", "attention_mask")
OUTPUT_NAME = "logits"
CUDA_PROVIDER = "CUDAExecutionProvider"
_CPU_PROVIDER = "CPUExecutionProvider"
_ERRORS_ONLY = 3

Device = Literal["cpu", "cuda"]
LogitsFunction = Callable[[IntArray, IntArray], NDArray[np.float32]]
"""``input_ids, attention_mask`` (``int64 [batch, seq]`` both) → ``logits`` float32."""


def usable_cpus() -> int:
    """Return the CPUs that this process may run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def demand_device(device: Device) -> None:
    """Check that the installed ONNX Runtime can use a device.

    Raises:
        ConfigError: it has no provider for it.
    """
    available = onnxruntime.get_available_providers()
    if device == "cuda" and CUDA_PROVIDER not in available:
        raise ConfigError(
            f"the installed ONNX Runtime has no {CUDA_PROVIDER}, only {', '.join(available)}",
            place="export.target",
            value=device,
            remedy="Install onnxruntime-gpu in onnxruntime's place on a machine with a GPU, "
            "or set export.target to cpu.",
        )


def open_session(
    path: Path, *, options: onnxruntime.SessionOptions, device: Device = "cpu"
) -> onnxruntime.InferenceSession:
    """Return a session over a model file, on exactly the device that was asked for.

    Raises:
        ConfigError: the device cannot be used.
        ExportError: ONNX Runtime refuses the file.
    """
    demand_device(device)
    try:
        session = onnxruntime.InferenceSession(
            str(path),
            options,
            providers=_providers(device),
            disabled_optimizers=disabled_optimizers(device),
        )
    except Exception as error:  # onnxruntime's own types share no base of their own
        raise ExportError(
            f"ONNX Runtime cannot load the model: {error}", place=path.name
        ) from error
    if device == "cuda" and CUDA_PROVIDER not in session.get_providers():
        # ONNX Runtime logs what it lacks and goes on with the CPU.
        raise ConfigError(
            "ONNX Runtime could not start CUDA and fell back to the CPU",
            place="export.target",
            value=device,
            remedy="Install the CUDA and cuDNN versions that this onnxruntime-gpu names, "
            "or set export.target to cpu.",
        )
    return session


def open_model(
    path: Path, *, num_threads: int | None = None, device: Device = "cpu"
) -> LogitsFunction:
    """Return a model file as a function; ``num_threads`` None takes all usable CPUs.

    Raises:
        ConfigError: the device cannot be used.
        ExportError: ONNX Runtime refuses the file.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or usable_cpus()
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    # As serving runs its models. Spinning threads would also take the cores from the next
    # model that is timed.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = open_session(path, options=options, device=device)

    def run(input_ids: IntArray, attention_mask: IntArray) -> NDArray[np.float32]:
        feeds = dict(zip(INPUT_NAMES, (input_ids, attention_mask), strict=True))
        return np.asarray(session.run([OUTPUT_NAME], feeds)[0], dtype=np.float32)

    return run


def _providers(device: Device) -> list[str | tuple[str, dict[str, Any]]]:
    if device == "cpu":
        return [_CPU_PROVIDER]
    # TF32 keeps 10 bits of a product's inputs: FP32 would no longer answer as torch does.
    return [(CUDA_PROVIDER, {"use_tf32": "0"}), _CPU_PROVIDER]
