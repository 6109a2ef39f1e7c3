"""The manifest of a checkpoint folder: written by training, read by evaluation and export."""

from pathlib import Path
from typing import Any

from pipeline.contract.errors import FolderError, SchemaVersionError
from pipeline.contract.folder import read_manifest

CHECKPOINT_SCHEMA_VERSION = 2
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
