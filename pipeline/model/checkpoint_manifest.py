"""The manifest of a checkpoint folder: written by training, read by evaluation and export."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.contract.errors import FolderError, SchemaVersionError
from pipeline.contract.folder import read_manifest

CHECKPOINT_SCHEMA_VERSION = 3
BEST = "best"
"""Value of ``train.final_weights``; a kind of checkpoint it is not, any kind may be the best."""
FINAL = "final"
PERMANENT = "permanent"
ROLLING = "rolling"
_NEEDED = (
    "fingerprint",
    "is_finished",
    "task",
    "labels",
    "text_settings",
    "text_fingerprint",
    "pad_token_id",
    "architecture",
    "shards_fingerprint",
    "total_steps",
    "checkpoints",
)


def read_checkpoint_manifest(folder: Path) -> dict[str, Any]:
    """Return a checkpoint folder's manifest.

    Raises:
        MissingFileError: the folder or its manifest is not there.
        SchemaVersionError: another version wrote the folder.
        FolderError: the manifest lacks a field.
    """
    manifest = read_manifest(folder)
    version = manifest.get("schema_version")
    if version != CHECKPOINT_SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this version reads checkpoints of schema {CHECKPOINT_SCHEMA_VERSION}",
            place=str(folder),
            value=version,
            remedy="Run `textlane train --force` with this version.",
        )
    missing = [name for name in _NEEDED if name not in manifest]
    if missing:
        raise FolderError(f"the manifest lacks {', '.join(missing)}", place=str(folder))
    return manifest


def chosen_entry(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the checkpoint that evaluation and export take, None if it is not there.

    It is the best by the validation rows if ``train.final_weights`` says so, the final one
    otherwise; of an unfinished training none.
    """
    if not manifest["is_finished"]:
        return None
    wants_best = manifest.get("final_weights") == BEST
    for entry in manifest["checkpoints"]:
        if entry.get("is_best", False) if wants_best else entry["kind"] == FINAL:
            return dict(entry)
    return None
