"""Manifests and models of known distance from the stored grid, for the checks of verify."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from profiles import profile_values

from pipeline.contract.batching import IntArray
from pipeline.contract.bundle import BUNDLE_SCHEMA_VERSION, BundleManifest
from pipeline.export.onnx_session import LogitsFunction
from pipeline.export.parity import ParityCell

MODELS = ("model.onnx", "model_int8.onnx", "model_fp16.onnx")
ATOL = 1e-3
INT8_ERROR = 0.01
SHIFT = 0.1


def answer(input_ids: IntArray, mask: IntArray) -> NDArray[np.float32]:
    """The right logits, two labels: the mean of the real tokens' ids, and its negative."""
    mean = (input_ids * mask).sum(axis=1) / mask.sum(axis=1)
    return np.stack([mean, -mean], axis=1).astype(np.float32)


def answer_off_by(distance: float) -> LogitsFunction:
    return lambda input_ids, mask: answer(input_ids, mask) + np.float32(distance)


def answer_shifting_by(distance: float) -> LogitsFunction:
    """Right for a text alone and unpadded; its logits move by ``distance`` in any company."""

    def run(input_ids: IntArray, mask: IntArray) -> NDArray[np.float32]:
        is_alone = len(input_ids) == 1 and bool(mask.all())
        return answer(input_ids, mask) + np.float32(0.0 if is_alone else distance)

    return run


def build_cells() -> list[ParityCell]:
    rng = np.random.default_rng(0)
    cells = []
    for batch, seq_len in ((1, 3), (2, 8), (4, 16)):
        input_ids = rng.integers(0, 9, (batch, seq_len))
        mask = rng.integers(0, 2, (batch, seq_len))
        mask[:, 0] = 1
        logits = answer(input_ids, mask)
        cells.append(ParityCell(input_ids=input_ids, attention_mask=mask, logits=logits))
    return cells


def build_manifest(**changes: Any) -> BundleManifest:
    """A manifest as export writes it, with the figures that verify compares with."""
    shift = {"logit": SHIFT, "probability": SHIFT}
    of_model = {"mean_error": INT8_ERROR, "batch_shift": shift}
    values: dict[str, Any] = {
        "schema_version": BUNDLE_SCHEMA_VERSION,
        "name": "tiny",
        "task": "sequence_classification",
        "labels": ["bad", "good"],
        "target": "cpu",
        "default_model": "model.onnx",
        "batch_shift": {name: {"logit": 0.0, "probability": 0.0} for name in MODELS},
        "seq_len_percentiles": [3] * 101,
        "profile": profile_values([3] * 101, ["bad", "good"]),
        "opset": 14,
        "pad_token_id": 0,
        "max_seq_len": 16,
        "strip_html": False,
        "takes_pairs": False,
        "text_fingerprint": "",
        "limits": {"max_seq_len": 16, "max_text_chars": 100, "max_batch_rows": 32},
        "quality": {
            "parity": {"atol": ATOL, "fp16": {"atol": 2 * ATOL}},
            "reference": dict.fromkeys(MODELS, of_model),
        },
        "provenance": {},
        "files": {},
    }
    return BundleManifest.model_validate({**values, **changes})
