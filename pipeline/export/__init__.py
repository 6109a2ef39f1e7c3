"""Checkpoint to bundle: ONNX, fusion, INT8 and the checks between."""

from pipeline.contract.telemetry import refuse_telemetry

# Here, so that it comes before whichever module of this package imports onnxruntime first.
refuse_telemetry()
