"""The file ``<bundle>.tuning.json``: what was measured, on what, and what was chosen."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from pipeline.contract.bundle import Bundle, ModelName
from pipeline.contract.errors import FolderError, MissingFileError, SchemaVersionError
from pipeline.contract.folder import read_json, write_text_atomically
from pipeline.contract.settings import Settings
from serve_app.cost_model import Cell, CostFit
from serve_app.machine import Machine
from serve_app.tuning_choice import TuningChoice

TUNING_SCHEMA_VERSION = 1
_REMEDY = "Run `textlane tune {folder}` on the machine that serves."


class UsedLengths(Settings):
    """Lengths that a choice was made for."""

    source: str
    shortest: int = Field(ge=1)
    median: int = Field(ge=1)
    longest: int = Field(ge=1)


class Tuning(Settings):
    """All that the file holds."""

    schema_version: int
    bundle_version: str
    """Name of exactly the bundle's bytes."""
    model: ModelName
    """Model file that was measured."""
    machine: Machine
    lengths: UsedLengths
    choice: TuningChoice
    fits: tuple[CostFit, ...] = Field(strict=False, min_length=1)
    """What runs cost, one for each number of threads."""
    cells: tuple[Cell, ...] = Field(strict=False, min_length=1)
    skipped: tuple[Annotated[tuple[int, int, int], Field(strict=False)], ...] = Field(strict=False)
    """(threads, batch, seq) that there was no time for."""


def tuning_path(bundle_folder: Path) -> Path:
    """Return where a bundle's tuning lies: beside it, for a bundle is sealed."""
    folder = bundle_folder.resolve()
    return folder.with_name(f"{folder.name}.tuning.json")


def write_tuning(path: Path, tuning: Tuning) -> None:
    """Write the file; a reader sees the old one or the new, never a part."""
    write_text_atomically(path, as_json(tuning))


def as_json(tuning: Tuning) -> str:
    """Return the file's text: one cell, one fit, one value to a line."""
    values = tuning.model_dump(mode="json")
    parts = [f"{json.dumps(key)}: {_as_block(value)}" for key, value in values.items()]
    return "{\n  " + ",\n  ".join(parts) + "\n}\n"


def _as_block(value: Any) -> str:
    if isinstance(value, list) and value:
        rows = ",\n    ".join(_as_line(row) for row in value)
        return f"[\n    {rows}\n  ]"
    if isinstance(value, dict):
        rows = ",\n    ".join(f"{json.dumps(key)}: {_as_line(part)}" for key, part in value.items())
        return f"{{\n    {rows}\n  }}"
    return _as_line(value)


def _as_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_tuning(path: Path) -> Tuning:
    """Return a tuning, every field checked.

    Raises:
        MissingFileError: the file is not there.
        SchemaVersionError: another version of textlane wrote it.
        FolderError: it is damaged or no tuning; names the field.
    """
    remedy = _REMEDY.format(folder="BUNDLE")
    try:
        values = read_json(path)
    except MissingFileError:
        raise MissingFileError("there is no such tuning", place=str(path), remedy=remedy) from None
    except FolderError as error:
        raise FolderError(error.problem, place=str(path), remedy=remedy) from None
    except (OSError, RecursionError, ValueError) as error:
        # The last two: brackets too deep and numbers too long for the parser.
        raise FolderError(
            f"the tuning cannot be read: {error}", place=str(path), remedy=remedy
        ) from None
    version = values.get("schema_version") if isinstance(values, dict) else None
    if isinstance(values, dict) and version != TUNING_SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this version reads tunings of schema {TUNING_SCHEMA_VERSION}",
            place=str(path),
            value=version,
            remedy=remedy,
        )
    try:
        return Tuning.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise FolderError(
            f"not a tuning: {field}: {first['msg']}", place=str(path), remedy=remedy
        ) from None


def why_not(tuning: Tuning, *, bundle: Bundle, model: str, machine: Machine) -> str | None:
    """Return why a tuning does not hold for this bundle, model file and machine, or None."""
    pairs = (
        ("bundle", tuning.bundle_version, bundle.version),
        ("model file", tuning.model, model),
        ("CPU", tuning.machine.cpu, machine.cpu),
        ("number of usable CPUs", tuning.machine.usable_cpus, machine.usable_cpus),
        ("version of onnxruntime", tuning.machine.onnxruntime, machine.onnxruntime),
    )
    for name, tuned, here in pairs:
        if tuned != here:
            return f"it is for another {name}: {tuned}, here {here}"
    choice, limits = tuning.choice, bundle.manifest.limits
    fits = (
        choice.max_batch_tokens >= limits.max_seq_len > choice.short_max_tokens
        and choice.max_batch_requests <= limits.max_batch_rows
        and choice.threads_per_replica <= machine.usable_cpus
    )
    return None if fits else "its values do not fit the bundle it names; was it edited?"


def remedy_for(folder: Path) -> str:
    """Return what to do to get a tuning that holds."""
    return _REMEDY.format(folder=folder)
