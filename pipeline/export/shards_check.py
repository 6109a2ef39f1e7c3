"""Repeats on a bundle's own shards what export measured on them: accuracies and batch shift."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.config import Task
from pipeline.contract.bundle import FP32_NAME, INT8_NAME, BundleManifest
from pipeline.contract.errors import ExportError, FolderError
from pipeline.contract.shards import Shards, load_shards
from pipeline.export.figures import (
    GATE_SPLIT,
    MOST_SAMPLE_ROWS,
    ScoreSettings,
    measure_shifts,
    score_models,
    spread_rows,
)
from pipeline.export.onnx_session import LogitsFunction
from pipeline.export.parity import grid_seq_lens
from pipeline.export.recorded_figures import read_figure, read_number
from pipeline.export.run_checks import MARGIN, demand_shift, read_atol

_TOLERANCES = {FP32_NAME: (0.001, 1), INT8_NAME: (0.005, 2)}
"""Model → share and number of rows by which its accuracy may differ, the larger one.

Chosen. FP32's answers change between CPUs only where two labels tie to the sixth digit. INT8's
logits change by about half of what INT8 costs (see :data:`pipeline.export.run_checks.MARGIN`), and
half of the answers that it flips come and go in either direction."""


def check_on_shards(
    models: Mapping[str, LogitsFunction], manifest: BundleManifest, *, shards_dir: Path
) -> list[str]:
    """Measure again what the INT8 gate judged, and the batch shift of the validation texts.

    Accuracies are those of FP32 and INT8 on validation; without INT8, that of FP32 on the rows
    of its figures. The batch shift may be as far from that of the manifest as
    :func:`pipeline.export.run_checks.demand_shift` says.

    Returns:
        What was checked, for people.

    Raises:
        FolderError: (or a subtype) the shards cannot be read, or are others than the
            bundle's.
        ExportError: a figure is not that of the manifest.
    """
    shards = _load_own_shards(shards_dir, manifest)
    lines = _check_accuracies(models, manifest, shards)
    return lines + _check_shifts(models, manifest, shards)


def _check_accuracies(
    models: Mapping[str, LogitsFunction], manifest: BundleManifest, shards: Shards
) -> list[str]:
    recorded = _recorded_accuracies(manifest)
    split_name = GATE_SPLIT if INT8_NAME in recorded else str(read_figure(manifest, "split"))
    split = shards.split(split_name)
    judged = {name: models[name] for name in recorded}
    found = score_models(judged, split, _score_settings(manifest))["accuracy"]
    lines = []
    for name, accuracy in recorded.items():
        share, rows = _TOLERANCES[name]
        tolerance = max(share, rows / len(split))
        if not abs(found[name] - accuracy) <= tolerance:
            raise ExportError(
                f"its accuracy on {len(split)} {split_name} rows is not the {accuracy:.4f} of "
                f"export, give or take {tolerance:.4f}",
                place=name,
                value=round(found[name], 4),
                remedy="Do not serve it on this machine; export it here.",
            )
        lines.append(
            f"{name}: accuracy {found[name]:.4f} on {len(split)} {split_name} rows, "
            f"{accuracy:.4f} at export (± {tolerance:.4f} allowed)"
        )
    return lines


def _check_shifts(
    models: Mapping[str, LogitsFunction], manifest: BundleManifest, shards: Shards
) -> list[str]:
    rows = spread_rows(shards.split(GATE_SPLIT), most=MOST_SAMPLE_ROWS)
    seq_lens = grid_seq_lens(shards.bucket_edges, manifest.max_seq_len)
    recorded = {str(name): shift for name, shift in manifest.batch_shift.items()}
    found = measure_shifts(models, rows, _score_settings(manifest), seq_lens=seq_lens)
    lines = []
    for name, shift in found.items():
        slack = read_atol(manifest, name=name)
        demand_shift(shift, recorded[name], slack=slack, name=name)
        lines.append(
            f"{name}: batch shift {shift.logit:.3g} on {GATE_SPLIT} texts, "
            f"{recorded[name].logit:.3g} at export (× {MARGIN:g} + {slack:g} allowed)"
        )
    return lines


def _score_settings(manifest: BundleManifest) -> ScoreSettings:
    return ScoreSettings(
        task=Task(manifest.task),
        num_labels=len(manifest.labels),
        pad_token_id=manifest.pad_token_id,
        batch_rows=int(read_number(manifest, "batch_rows")),
    )


def _load_own_shards(shards_dir: Path, manifest: BundleManifest) -> Shards:
    shards = load_shards(shards_dir)
    made_from = manifest.provenance.get("data_hash")
    if shards.fingerprint != made_from:
        raise FolderError(
            f"the bundle was made from other shards, whose fingerprint is {made_from}",
            place=str(shards_dir),
            value=shards.fingerprint,
            remedy="Name the shards of the bundle's own job.",
        )
    return shards


def _recorded_accuracies(manifest: BundleManifest) -> dict[str, float]:
    if read_figure(manifest, "gate") is None:
        return {FP32_NAME: read_number(manifest, "accuracy", FP32_NAME)}
    return {
        FP32_NAME: read_number(manifest, "gate", "fp32_accuracy"),
        INT8_NAME: read_number(manifest, "gate", "int8_accuracy"),
    }
