"""Runs a bundle's model on this machine and compares it with what export saw."""

from collections.abc import Sequence

import numpy as np

from pipeline.config import Task
from pipeline.contract.bundle import FP16_NAME, INT8_NAME, BatchShift, BundleManifest
from pipeline.contract.errors import ExportError
from pipeline.export.grid_figures import measure_errors, measure_shift
from pipeline.export.onnx_session import LogitsFunction
from pipeline.export.parity import GRID_BATCH_SIZES, ParityCell
from pipeline.export.recorded_figures import read_number, read_shift

_BATCH_SEQ_LEN = 16
MARGIN = 1.25
"""How much larger than at export an INT8 model's mean error, or a batch shift, may be here.

Another CPU rounds otherwise, and then some activations fall on the next integer: single logits
move by as much as INT8 costs, so that neither equal logits nor equal largest errors can be asked
for. Measured on MiniLM (2026-12-02), ONNX Runtime's optimisations on against off, which changes
the rounding in the same way: logits up to 0.053 apart, yet the mean error 0.01025 and 0.01031,
and the largest shift of 32 comparisons 0–5 % apart (six draws)."""
_REMEDY = "Do not serve it on this machine; export it here, or set export.int8 to false."


def check_finite(
    run: LogitsFunction, manifest: BundleManifest, *, vocab_size: int, name: str
) -> str:
    """Check the shape of the logits, and that they are finite, over whole batches of real tokens.

    Returns:
        What was checked, for people.

    Raises:
        ExportError: a run fails, or its logits are misshapen or not finite.
    """
    num_labels = len(manifest.labels)
    shapes = [(batch, min(_BATCH_SEQ_LEN, manifest.max_seq_len)) for batch in GRID_BATCH_SIZES]
    shapes.append((1, manifest.max_seq_len))
    for shape in shapes:
        rows = shape if manifest.task == Task.TOKEN.value else shape[:1]
        # The highest id is among them: a graph with a smaller table would fail on it.
        ids = np.arange(vocab_size - 1, -1, -1, dtype=np.int64)
        cell = ParityCell(
            input_ids=np.resize(ids, shape),
            attention_mask=np.ones(shape, dtype=np.int64),
            logits=np.zeros((*rows, num_labels), dtype=np.float32),
        )
        measure_errors(run, [cell], name=name)
    names = ", ".join(f"[{batch}, {seq}]" for batch, seq in shapes)
    return f"{name}: finite logits for [batch, seq] of {names}"


def check_against_torch(
    run: LogitsFunction, cells: Sequence[ParityCell], manifest: BundleManifest, *, name: str
) -> str:
    """Check a model's distance from torch's stored logits.

    FP32 and FP16 keep the largest difference that the manifest allows them. INT8's mean
    difference is at most :data:`MARGIN` times that of export on the same inputs.

    Returns:
        What was checked, for people.

    Raises:
        ExportError: the distance is larger, or a run fails.
    """
    errors = measure_errors(run, cells, name=name)
    inputs = f"torch's logits on {len(cells)} stored inputs"
    if name == INT8_NAME:
        recorded = read_number(manifest, "reference", name, "mean_error")
        found, limit, kind = errors.mean, MARGIN * recorded, "mean error"
        rule = f"{recorded:.3g} at export × {MARGIN:g} allowed"
    else:
        limit, found, kind = read_atol(manifest, name=name), errors.largest, "largest error"
        rule = f"atol {limit:g}"
    if not found <= limit:
        batch, seq_len = errors.worst_shape
        raise ExportError(
            f"its {kind} from {inputs} is over {limit:.3g} ({rule}), "
            f"most at batch {batch}, seq {seq_len}",
            place=name,
            value=found,
            remedy=_REMEDY,
        )
    return f"{name}: {kind} {found:.3g} from {inputs} ({rule})"


def check_shift(
    run: LogitsFunction, cells: Sequence[ParityCell], manifest: BundleManifest, *, name: str
) -> str:
    """Check that answers move with their batch no more than at export, on the same texts.

    At most :data:`MARGIN` times as far, and the tolerance of float rounding (``atol``) more.

    Returns:
        What was checked, for people.

    Raises:
        ExportError: a logit or a probability moves further.
    """
    shift = measure_shift(
        run,
        cells,
        pad_token_id=manifest.pad_token_id,
        is_multi_label=manifest.task == Task.MULTI_LABEL.value,
    )
    recorded = read_shift(manifest, "reference", name, "batch_shift")
    slack = read_atol(manifest, name=name)
    demand_shift(shift, recorded, slack=slack, name=name)
    return (
        f"{name}: batch shift {shift.logit:.3g} on the stored texts, {recorded.logit:.3g} at "
        f"export (× {MARGIN:g} + {slack:g} allowed)"
    )


def demand_shift(found: BatchShift, recorded: BatchShift, *, slack: float, name: str) -> None:
    """Check that a batch shift is at most ``MARGIN`` times the recorded one, and ``slack`` more.

    Raises:
        ExportError: a logit or a probability moves further.
    """
    pairs = {
        "logit": (found.logit, recorded.logit),
        "probability": (found.probability, recorded.probability),
    }
    for kind, (here, at_export) in pairs.items():
        limit = MARGIN * at_export + slack
        if not here <= limit:
            raise ExportError(
                f"a {kind} moves with its batch by more than {limit:.3g} "
                f"({at_export:.3g} at export × {MARGIN:g} + {slack:g})",
                place=name,
                value=here,
                remedy=_REMEDY,
            )


def read_atol(manifest: BundleManifest, *, name: str) -> float:
    """Return the largest difference from torch's logits that a float model of this name may have.

    Of INT8: FP32's, which is what its float parts keep.
    """
    keys = ("parity", "fp16", "atol") if name == FP16_NAME else ("parity", "atol")
    return read_number(manifest, *keys)
