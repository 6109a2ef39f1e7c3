"""What every stage returns, how it is run for people, and how it knows that it is done."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

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


def run_stage(name: str, stage: Callable[[], StageResult]) -> None:
    """Run a stage and print its name, the time it took, its summary and its folder."""
    console = Console(stderr=True, soft_wrap=True)
    started = time.monotonic()
    result = stage()
    took = "already done" if result.is_reused else f"{time.monotonic() - started:.1f} s"
    console.print(f"[bold]{name}[/bold] ({took}): ", end="")
    console.print(f"{result.summary} → {result.folder}", markup=False, highlight=False)
