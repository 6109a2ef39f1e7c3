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
_TYPES = {"is_finished": bool, "deciding": dict, "checkpoints": list}
_ENTRY_TYPES = {
    "file": str,
    "step": int,
    "loss": float,
    "sha256": str,
    "kind": str,
    "is_best": bool,
}
_REMEDY = "Put the manifest back as it was, or train anew with `textlane train --force`."


def read_checkpoint_manifest(folder: Path) -> dict[str, Any]:
    """Return a checkpoint folder's manifest.

    Raises:
        MissingFileError: the folder or its manifest is not there.
        SchemaVersionError: another version wrote the folder.
        FolderError: the manifest lacks a field, or one is not as training writes it.
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
    demand_whole(manifest, place=str(folder))
    return manifest


def demand_whole(manifest: Mapping[str, Any], *, place: str, also: tuple[str, ...] = ()) -> None:
    """Check the fields of a manifest of this schema that decide which checkpoint is taken.

    Args:
        manifest: of a checkpoint folder.
        place: the folder, for people.
        also: fields to demand beside those that evaluation and export need.

    Raises:
        FolderError: a field is missing or of another type.
    """
    if missing := [name for name in (*_NEEDED, *also) if name not in manifest]:
        text = f"the manifest lacks {', '.join(missing)}"
        raise FolderError(text, place=place, remedy=_REMEDY)
    there = [name for name in _TYPES if name in manifest]
    odd = [name for name in there if not isinstance(manifest[name], _TYPES[name])]
    if not odd:
        entries = enumerate(manifest["checkpoints"])
        odd = [f"checkpoints[{at}]" for at, entry in entries if not _is_entry(entry)]
    if odd:
        text = f"{', '.join(odd)} in the manifest is not as training writes it"
        raise FolderError(text, place=place, remedy=_REMEDY)


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), kind) for name, kind in _ENTRY_TYPES.items()
    )


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
