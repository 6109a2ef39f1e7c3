"""Checkpoints on disk: written atomically, hashed, pruned, and found again after a crash."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pipeline.contract.errors import AlteredFileError, MissingFileError
from pipeline.contract.folder import sha256_file, sync_folder, verify_files, write_manifest
from pipeline.model.checkpoint_manifest import FINAL, ROLLING, read_checkpoint_manifest
from pipeline.train.history import sync_history
from pipeline.train.step import Optimisation

_TEMPORARY_ENDING = ".partial"

Entry = dict[str, Any]
"""One checkpoint in the manifest: file, step, loss, sha256, kind, is_best."""


@dataclass(frozen=True, kw_only=True)
class CheckpointLabel:
    """What the manifest says of a checkpoint beside its hash."""

    step: int
    """Steps done."""
    loss: float
    """Of that step."""
    kind: str
    """``rolling``, ``permanent`` or ``final``; a final one finishes the training."""
    is_best: bool = False
    """Whether the validation rows were never measured better."""

    @property
    def file_name(self) -> str:
        """The file's name, such as ``step_500_loss_0.4321.pt``."""
        return f"step_{self.step}_loss_{self.loss:.4f}.pt"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Where a training goes on."""

    path: Path | None
    """The newest checkpoint whose bytes are as written, None if there is none."""
    is_final: bool = False
    """Whether that one finished the training."""
    passed_over: tuple[str, ...] = ()
    """What is wrong with each newer one."""


def save_checkpoint(
    folder: Path, state: dict[str, Any], label: CheckpointLabel, *, keep: int
) -> Path:
    """Write one checkpoint, enter it in the manifest, and drop what is not to be kept.

    A kill at any moment leaves either the old manifest with all its files, or the new one
    with all of its; files that no manifest names are removed by :func:`drop_unnamed_files`.

    Args:
        folder: the checkpoint folder, its manifest already there.
        state: from :func:`capture_state`.
        label: step, loss and kind.
        keep: rolling checkpoints to keep.
    """
    path = folder / label.file_name
    _write_atomically(path, state)
    # The lines up to this step: after a power cut the resumed run would not write them again.
    sync_history(folder)
    manifest = read_checkpoint_manifest(folder)
    entry = {
        "file": path.name,
        "step": label.step,
        "loss": label.loss,
        "sha256": sha256_file(path),
        "kind": label.kind,
        "is_best": label.is_best,
    }
    entries = enter_checkpoint(manifest["checkpoints"], entry, keep=keep)
    is_finished = label.kind == FINAL
    manifest |= {"checkpoints": entries, "latest": path.name, "is_finished": is_finished}
    write_manifest(folder, manifest)
    drop_unnamed_files(folder, manifest)
    return path


def enter_checkpoint(entries: Sequence[Entry], entry: Entry, *, keep: int) -> list[Entry]:
    """Return a manifest's entries, by step, when one more is written; at most one is the best.

    Of the rolling ones only the ``keep`` newest stay. The best one is not among those counted
    and stays whatever its kind; a permanent or final one always stays.
    """
    others = [other for other in entries if other["step"] != entry["step"]]
    if entry["is_best"]:
        others = [{**other, "is_best": False} for other in others]
    found = sorted([*others, entry], key=lambda one: int(one["step"]))
    counted = [one["step"] for one in found if one["kind"] == ROLLING and not one["is_best"]]
    dropped = set(counted[: max(len(counted) - keep, 0)])
    return [one for one in found if one["step"] not in dropped]


def choose_checkpoint(folder: Path) -> Choice:
    """Return the newest good checkpoint and what was passed over on the way to it.

    A missing, truncated or altered file is passed over.
    """
    manifest = read_checkpoint_manifest(folder)
    passed_over = []
    for entry in sorted(manifest["checkpoints"], key=lambda entry: -int(entry["step"])):
        try:
            verify_files(folder, {entry["file"]: entry["sha256"]})
        except (MissingFileError, AlteredFileError) as error:
            passed_over.append(f"{entry['file']}: {error.problem}")
            continue
        return Choice(
            path=folder / str(entry["file"]),
            is_final=entry["kind"] == FINAL,
            passed_over=tuple(passed_over),
        )
    return Choice(path=None, passed_over=tuple(passed_over))


def find_latest_checkpoint(folder: Path) -> Path | None:
    """Return the path that :func:`choose_checkpoint` finds."""
    return choose_checkpoint(folder).path


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return a captured state. Nothing in the file is run: only tensors and plain values."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def drop_later_checkpoints(folder: Path, *, step: int, best_step: int) -> None:
    """Take the checkpoints after a step out of manifest and folder: the run goes on from it.

    Args:
        folder: the checkpoint folder.
        step: steps done.
        best_step: the best one among those up to ``step``; 0 for none.
    """
    manifest = read_checkpoint_manifest(folder)
    entries = [
        {**entry, "is_best": entry["step"] == best_step}
        for entry in manifest["checkpoints"]
        if entry["step"] <= step
    ]
    latest = entries[-1]["file"] if entries else None
    manifest |= {"checkpoints": entries, "latest": latest, "is_finished": False}
    write_manifest(folder, manifest)
    drop_unnamed_files(folder, manifest)


def drop_unnamed_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Remove checkpoint files that the manifest does not name, such as a killed run's."""
    named = {entry["file"] for entry in manifest["checkpoints"]}
    for pattern in ("step_*.pt", f"step_*{_TEMPORARY_ENDING}"):
        for path in folder.glob(pattern):
            if path.name not in named:
                path.unlink()


def capture_state(
    state: Optimisation, *, step: int, rng: Sequence[dict[str, Any]], facts: dict[str, Any]
) -> dict[str, Any]:
    """Return everything that a resumed run needs, tensors and plain values only.

    The tensors are those of the training, not copies: the next step changes them.

    Args:
        state: model, optimiser and loss scale.
        step: steps done.
        rng: every rank's :func:`~pipeline.train.rng.capture_rng`, by rank.
        facts: fingerprints, versions, counts and sizes to keep beside them.
    """
    return {
        **facts,
        "step": step,
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "scaler": state.scaler.state_dict(),
        "rng": list(rng),
    }


def restore_state(state: Optimisation, saved: dict[str, Any]) -> int:
    """Put captured weights, optimiser and loss scale back; return the steps they had done."""
    state.model.load_state_dict(saved["model"])
    state.optimizer.load_state_dict(saved["optimizer"])
    state.scaler.load_state_dict(saved["scaler"])
    return int(saved["step"])


def _write_atomically(path: Path, state: dict[str, Any]) -> None:
    temporary = path.with_name(f"{path.name}{_TEMPORARY_ENDING}")
    try:
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
