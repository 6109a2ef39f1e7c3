"""Checkpoint to bundle: ONNX, fusion, INT8 and the checks between."""
