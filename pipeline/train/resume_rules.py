"""Whether a training goes on in a checkpoint folder, replaces it, or is refused."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.contract.errors import FolderError, MissingFileError
from pipeline.contract.folder import (
    MANIFEST_NAME,
    atomic_folder,
    read_manifest,
    refuse_file_in_place_of,
    verify_files,
    write_manifest,
)
from pipeline.contract.shards import Shards
from pipeline.contract.tokenization import TOKENIZER_NAME, load_text_encoder
from pipeline.model.checkpoint_manifest import (
    CHECKPOINT_SCHEMA_VERSION,
    FINAL,
    chosen_entry,
    demand_whole,
)
from pipeline.train.training_run import TrainingRun

_ABSENT = object()
"""Stands for a setting that one side of a comparison does not have."""
_LEFT_ALONE = (
    f"Put its {MANIFEST_NAME} back if it is yours, move the folder away, or set another "
    "output_dir; --force leaves it alone too."
)
_NAMED = 3
"""Names of files that a message lists at most."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What is to become of a folder."""

    goes_on: bool
    """Whether its training is this one and stays."""
    note: str | None = None
    """What people should know of a folder that is replaced."""


def is_finished(run: TrainingRun) -> bool:
    """Return whether the folder holds this training to its end, with the weights asked for.

    A weights file that is missing or altered means no: the training goes on before it.
    """
    try:
        manifest = read_manifest(run.checkpoint_dir)
        if manifest.get("is_finished") is not True or _differences(run, manifest):
            return False
        entry = chosen_entry(manifest | _choices(run))
        if entry is None:
            return False
        verify_files(run.checkpoint_dir, {entry["file"]: entry["sha256"]})
    except FolderError:
        return False
    return True


def judge_folder(run: TrainingRun, *, force: bool) -> Opening:
    """Return what is to become of the run's folder; nothing is written.

    An unfinished training with work in it is not given up for other settings: it goes on with
    its own, or is thrown away by name.

    Raises:
        FolderError: the folder is a file, or holds something else than checkpoints or a manifest
            that cannot be read, or, unless ``force``, an unfinished training of other settings
            or data, or a manifest that was edited.
    """
    folder = run.checkpoint_dir
    refuse_file_in_place_of(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return Opening(goes_on=False)
    found = _read_own_manifest(folder)
    if force:
        return Opening(goes_on=False)
    differences = "; ".join(_differences(run, found))
    if not differences:
        _demand_best(run, found)
        return Opening(goes_on=True)
    if found.get("is_finished") or not found.get("checkpoints"):
        what = "finished training" if found.get("is_finished") else "training without checkpoints"
        return Opening(goes_on=False, note=f"replaces the {what} of other settings: {differences}")
    raise FolderError(
        f"the folder holds an unfinished training of other settings: {differences}",
        place=str(folder),
        remedy="Put the settings back to go on with it, train anew with --force, or set another "
        "output_dir.",
    )


def _read_own_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder with files in it; without one nobody may remove them."""
    try:
        found = read_manifest(folder)
    except MissingFileError as error:
        names = sorted(path.name for path in folder.iterdir())
        others = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        raise FolderError(
            f"the folder has no {MANIFEST_NAME}, but holds {', '.join(names[:_NAMED])}{others}",
            place=str(folder),
            remedy=_LEFT_ALONE,
        ) from error
    except FolderError as error:
        raise FolderError(
            f"what the folder holds cannot be told: {error.problem}",
            place=error.place,
            remedy=_LEFT_ALONE,
        ) from error
    if "shards_fingerprint" not in found:
        raise FolderError(
            "the manifest is not that of a training: it lacks shards_fingerprint",
            place=str(folder / MANIFEST_NAME),
            remedy=_LEFT_ALONE,
        )
    return found


def _demand_best(run: TrainingRun, manifest: Mapping[str, Any]) -> None:
    # A finished training does not go on, so nothing would ever write its best checkpoint again.
    entry = chosen_entry({**manifest, **_choices(run)})
    if entry is None or entry["kind"] == FINAL:
        return
    try:
        verify_files(run.checkpoint_dir, {entry["file"]: entry["sha256"]})
    except FolderError as error:
        raise FolderError(
            f"the training is finished, but of its best checkpoint {error.problem}",
            place=error.place or str(run.checkpoint_dir),
            remedy="Set train.final_weights to last, or train anew with --force.",
        ) from error


def open_run(run: TrainingRun, shards: Shards, *, force: bool) -> list[str]:
    """Leave the folder of this run as it is; put an empty one in any other's place.

    Returns:
        What people should know of a folder that was replaced.

    Raises:
        FolderError: as :func:`judge_folder`.
    """
    opening = judge_folder(run, force=force)
    if opening.goes_on:
        keep_choices(run)
        return []
    with atomic_folder(run.checkpoint_dir) as fresh:
        shutil.copyfile(shards.folder / TOKENIZER_NAME, fresh / TOKENIZER_NAME)
        write_manifest(fresh, _first_manifest(run, shards))
    return [opening.note] if opening.note else []


def keep_choices(run: TrainingRun) -> None:
    """Enter in the manifest what may change without another training: which weights are taken."""
    manifest = read_manifest(run.checkpoint_dir)
    if manifest != manifest | _choices(run):
        write_manifest(run.checkpoint_dir, manifest | _choices(run))


def _choices(run: TrainingRun) -> dict[str, Any]:
    train = run.job.train
    return {"final_weights": train.final_weights, "best_metric": train.best_metric}


def _differences(run: TrainingRun, manifest: Mapping[str, Any]) -> list[str]:
    """Return ``name: old -> new`` of everything that makes the folder's training another one."""
    old = _flatten({"schema_version": manifest.get("schema_version", _ABSENT)})
    new = _flatten({"schema_version": CHECKPOINT_SCHEMA_VERSION})
    if old == new:
        also = ("deciding", "best_metric")
        demand_whole(manifest, place=str(run.checkpoint_dir), also=also)
        old |= _flatten(manifest["deciding"])
        new |= _flatten(json.loads(json.dumps(run.deciding)))  # as the manifest has it
        if run.job.train.final_weights == "best":
            # The best by another figure, or none, cannot be made from what is there.
            old["train.best_metric"] = manifest["best_metric"]
            new["train.best_metric"] = run.job.train.best_metric
            has_best = any(entry["is_best"] for entry in manifest["checkpoints"])
            if manifest["is_finished"] and not has_best:
                old["best checkpoint"], new["best checkpoint"] = "none", "one"
    names = [*new, *(name for name in old if name not in new)]
    pairs = ((name, old.get(name, _ABSENT), new.get(name, _ABSENT)) for name in names)
    return [f"{name}: {_describe_change(was, now)}" for name, was, now in pairs if was != now]


def _describe_change(was: Any, now: Any) -> str:
    """Return ``old -> new`` as people write them; a text looks otherwise than a number like it."""
    plain, quoted = ([_as_text(value, is_quoted=q) for value in (was, now)] for q in (False, True))
    return " -> ".join(quoted if plain[0] == plain[1] else plain)


def _as_text(value: Any, *, is_quoted: bool) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, str) and not is_quoted:
        return value
    return json.dumps(value, ensure_ascii=False)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _first_manifest(run: TrainingRun, shards: Shards) -> dict[str, Any]:
    return {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        **run.facts,
        "deciding": run.deciding,
        **_choices(run),
        "is_finished": False,
        "task": shards.task,
        "labels": shards.labels,
        "text_settings": asdict(shards.text_settings),
        "text_fingerprint": load_text_encoder(shards.folder, shards.text_settings).fingerprint,
        "pad_token_id": run.architecture.pad_token_id,
        "architecture": asdict(run.architecture),
        "shards_dir": str(run.shards_dir),
        "latest": None,
        "checkpoints": [],
    }
