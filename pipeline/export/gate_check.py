"""Repeats the accuracies that the INT8 gate judged, on the shards that it judged them on."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.config import Task
from pipeline.contract.bundle import FP32_NAME, INT8_NAME, BundleManifest
from pipeline.contract.errors import ExportError, FolderError
from pipeline.contract.shards import Shards, load_shards
from pipeline.export.figures import GATE_SPLIT, ScoreSettings, score_models
from pipeline.export.onnx_session import LogitsFunction
from pipeline.export.recorded_figures import read_figure, read_number

_TOLERANCES = {FP32_NAME: (0.001, 1), INT8_NAME: (0.005, 2)}
"""Model → share and number of rows by which its accuracy may differ, the larger one.

Chosen. FP32's answers change between CPUs only where two labels tie to the sixth digit. INT8's
logits change by about half of what INT8 costs (see :data:`pipeline.export.run_checks.MARGIN`), and
half of the answers that it flips come and go in either direction."""


def check_gate(
    models: Mapping[str, LogitsFunction], manifest: BundleManifest, *, shards_dir: Path
) -> list[str]:
    """Score FP32 and INT8 on validation again; without INT8, FP32 on the rows of its figures.

    Returns:
        What was checked, one line for each model.

    Raises:
        FolderError: (or a subtype) the shards cannot be read, or are others than the
            bundle's.
        ExportError: an accuracy is not that of the manifest.
    """
    shards = _load_own_shards(shards_dir, manifest)
    recorded = _recorded_accuracies(manifest)
    split_name = GATE_SPLIT if INT8_NAME in recorded else str(read_figure(manifest, "split"))
    split = shards.split(split_name)
    settings = ScoreSettings(
        task=Task(manifest.task),
        num_labels=len(manifest.labels),
        pad_token_id=manifest.pad_token_id,
        batch_rows=int(read_number(manifest, "batch_rows")),
    )
    judged = {name: models[name] for name in recorded}
    found = score_models(judged, split, settings)["accuracy"]
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
