"""What every stage returns, and how a stage knows that its work is already done."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.contract.errors import FolderError
from pipeline.contract.folder import read_manifest


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """The folder a stage wrote or found finished."""

    folder: Path
    is_reused: bool
    """True when the folder was already there for the same inputs and settings."""
    summary: str
    """One line for people: what is in the folder."""


def is_done(folder: Path, fingerprint: str) -> bool:
    """Return whether a folder's manifest says it was made from these inputs and settings.

    A missing or unreadable manifest means no: the stage runs again and replaces it.
    """
    try:
        manifest = read_manifest(folder)
    except FolderError:
        return False
    return manifest.get("fingerprint") == fingerprint and manifest.get("is_finished", True) is True
