"""Checkpoints on disk: written atomically, hashed, pruned, and found again after a crash."""

import logging
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.contract.errors import AlteredFileError, MissingFileError
from pipeline.contract.folder import sha256_file, sync_folder, verify_files, write_manifest
from pipeline.model.checkpoint_manifest import FINAL, ROLLING, read_checkpoint_manifest
from pipeline.train.step import Optimisation

_LOGGER = logging.getLogger(__name__)
_TEMPORARY_ENDING = ".partial"


def checkpoint_name(step: int, loss: float) -> str:
    """Return the file name, such as ``step_500_loss_0.4321.pt``."""
    return f"step_{step}_loss_{loss:.4f}.pt"


def save_checkpoint(
    folder: Path, state: dict[str, Any], *, step: int, loss: float, kind: str, keep: int
) -> Path:
    """Write one checkpoint, enter it in the manifest, and drop the oldest rolling ones.

    A kill at any moment leaves either the old manifest with all its files, or the new one
    with all of its; files that no manifest names are removed by :func:`drop_unnamed_files`.

    Args:
        folder: the checkpoint folder, its manifest already there.
        state: from :func:`capture_state`.
        step: steps done.
        loss: loss of that step, for the name.
        kind: ``rolling``, ``permanent`` or ``final``; a final one finishes the training.
        keep: rolling checkpoints to keep.
    """
    path = folder / checkpoint_name(step, loss)
    _write_atomically(path, state)
    manifest = read_checkpoint_manifest(folder)
    entries = [entry for entry in manifest["checkpoints"] if entry["step"] != step]
    entries.append(
        {"file": path.name, "step": step, "loss": loss, "sha256": sha256_file(path), "kind": kind}
    )
    rolling = [entry for entry in entries if entry["kind"] == ROLLING]
    entries = [entry for entry in entries if entry not in rolling[: max(len(rolling) - keep, 0)]]
    manifest |= {"checkpoints": entries, "latest": path.name, "is_finished": kind == FINAL}
    write_manifest(folder, manifest)
    drop_unnamed_files(folder, manifest)
    return path


def find_latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint whose bytes are as written, or None if there is none.

    A missing, truncated or altered file is passed over with a warning.
    """
    manifest = read_checkpoint_manifest(folder)
    for entry in sorted(manifest["checkpoints"], key=lambda entry: -int(entry["step"])):
        try:
            verify_files(folder, {entry["file"]: entry["sha256"]})
        except (MissingFileError, AlteredFileError) as error:
            _LOGGER.warning("checkpoint passed over: %s", error)
            continue
        return folder / str(entry["file"])
    return None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return a captured state. Nothing in the file is run: only tensors and plain values."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def drop_later_checkpoints(folder: Path, *, step: int) -> None:
    """Take the checkpoints after a step out of manifest and folder: the run goes on from it."""
    manifest = read_checkpoint_manifest(folder)
    entries = [entry for entry in manifest["checkpoints"] if entry["step"] <= step]
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


def capture_state(state: Optimisation, *, step: int, facts: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a resumed run needs, tensors and plain values only.

    Args:
        state: model, optimiser and loss scale.
        step: steps done.
        facts: fingerprints, versions and sizes to keep beside them.
    """
    numpy_state: Any = np.random.get_state(legacy=True)
    kind, keys, *rest = numpy_state
    return {
        **facts,
        "step": step,
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "scaler": state.scaler.state_dict(),
        "rng": {
            "python": random.getstate(),
            "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), *rest),
            "torch": torch.get_rng_state(),
        },
    }


def restore_state(state: Optimisation, saved: dict[str, Any]) -> int:
    """Put a captured state back and return the number of steps it had done."""
    state.model.load_state_dict(saved["model"])
    state.optimizer.load_state_dict(saved["optimizer"])
    state.scaler.load_state_dict(saved["scaler"])
    version, values, gauss = saved["rng"]["python"]
    random.setstate((version, tuple(values), gauss))
    kind, keys, *rest = saved["rng"]["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(saved["rng"]["torch"])
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
