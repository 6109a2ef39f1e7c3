"""Keeps ONNX Runtime from preparing reports on its use."""

import os

_SWITCH = "ORT_DISABLE_TELEMETRY"


def refuse_telemetry() -> None:
    """Make ONNX Runtime write and send no telemetry, unless the user's environment decides.

    To be called before ``onnxruntime`` is imported: version 1.32 opens a database below
    ``~/.cache/Microsoft`` at that moment, and its ``disable_telemetry_events()`` comes too late.
    """
    os.environ.setdefault(_SWITCH, "1")
