"""What a model does on the stored grid: its distance from torch, and how its answers shift."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.bundle import INT8_NAME, BatchShift
from pipeline.contract.errors import ExportError
from pipeline.export.batch_shift import measure_batch_shift
from pipeline.export.onnx_session import LogitsFunction
from pipeline.export.parity import ParityCell

_PROBES = 4
_TEXTS_OF_A_CELL = 2


@dataclass(frozen=True, kw_only=True)
class GridErrors:
    """How far a model's logits are from those of torch over the grid."""

    mean: float
    """Mean absolute difference of a logit."""
    largest: float
    """Largest absolute difference of a logit."""
    worst_shape: tuple[int, int]
    """``batch, seq`` of the input where the largest is."""


def measure_errors(run: LogitsFunction, cells: Sequence[ParityCell], *, name: str) -> GridErrors:
    """Return a model's distance from torch's logits.

    Args:
        run: the model.
        cells: the stored grid, at least one.
        name: the model's name in errors.

    Raises:
        ExportError: the model cannot run an input, or its logits are misshapen or not finite.
    """
    differences = [_differences(run, cell, name=name) for cell in cells]
    worst = max(range(len(cells)), key=lambda index: float(differences[index].max()))
    batch, seq_len = cells[worst].input_ids.shape
    return GridErrors(
        mean=float(np.mean(np.concatenate([one.ravel() for one in differences]))),
        largest=float(differences[worst].max()),
        worst_shape=(batch, seq_len),
    )


def measure_shift(
    run: LogitsFunction,
    cells: Sequence[ParityCell],
    *,
    pad_token_id: int,
    is_multi_label: bool,
) -> BatchShift:
    """Return the batch shift of texts made of the grid's unmasked ids.

    On these texts, unlike on those of validation, it can be repeated wherever the bundle is.
    """
    rows = [
        ids[mask == 1].astype(np.int32)
        for cell in cells
        for ids, mask in zip(
            cell.input_ids[:_TEXTS_OF_A_CELL], cell.attention_mask[:_TEXTS_OF_A_CELL], strict=True
        )
    ]
    return measure_batch_shift(
        run,
        rows,
        probes=_PROBES,
        pad_token_id=pad_token_id,
        seq_lens=sorted({cell.input_ids.shape[1] for cell in cells}),
        is_multi_label=is_multi_label,
    )


def describe_models(
    models: Mapping[str, LogitsFunction],
    cells: Sequence[ParityCell],
    *,
    pad_token_id: int,
    is_multi_label: bool,
) -> dict[str, Any]:
    """Return what the manifest keeps as ``quality.reference``, for verify to compare with.

    Of INT8 also its mean distance from torch: the float models have their parity.

    Example: ``{"model.onnx": {"batch_shift": {…}}, "model_int8.onnx": {"batch_shift": {…},
    "mean_error": 0.01}}``.

    Args:
        models: model file → its run.
        cells: what :func:`pipeline.export.reference.read_reference` gives.
        pad_token_id: fills the padding.
        is_multi_label: probabilities are of sigmoid, not of softmax.
    """
    figures: dict[str, Any] = {}
    for name, run in models.items():
        shift = measure_shift(run, cells, pad_token_id=pad_token_id, is_multi_label=is_multi_label)
        figures[name] = {"batch_shift": shift.model_dump(mode="json")}
        if name == INT8_NAME:
            figures[name]["mean_error"] = measure_errors(run, cells, name=name).mean
    return figures


def _differences(run: LogitsFunction, cell: ParityCell, *, name: str) -> NDArray[np.float32]:
    shape = list(cell.input_ids.shape)
    try:
        logits = run(cell.input_ids, cell.attention_mask)
    except Exception as error:  # onnxruntime's types share no base but Exception
        raise ExportError(f"the model run failed: {error}", place=name, value=shape) from error
    if logits.shape != cell.logits.shape:
        raise ExportError(
            f"its logits must have the shape {cell.logits.shape}", place=name, value=logits.shape
        )
    if not np.isfinite(logits).all():
        raise ExportError("the logits are not all finite", place=name, value=shape)
    return np.asarray(np.abs(logits - cell.logits), dtype=np.float32)
