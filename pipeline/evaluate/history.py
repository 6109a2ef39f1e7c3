"""The training curves: history.jsonl of a checkpoint folder."""

import json
import math
from pathlib import Path
from typing import Any

from pipeline.contract.errors import FolderError, MissingFileError

HISTORY_NAME = "history.jsonl"
_NEEDED = ("step", "loss", "lr", "tokens", "seconds")


def read_history(checkpoint_dir: Path) -> list[dict[str, Any]]:
    """Return one row per step, steps ascending; steps with a loss that is not finite are left out.

    A step that was done again after a restart counts once, as it was done last.

    Raises:
        MissingFileError: there is no history.
        FolderError: a line is not a step's JSON.
    """
    path = checkpoint_dir / HISTORY_NAME
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFileError(
            "the file is missing", place=str(path), remedy="Run `textlane train` again."
        ) from None
    # A line is whole only with its end; a kill may leave a part of one.
    lines = content[: content.rfind("\n") + 1].splitlines()
    rows: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        row = _read_line(line, f"{path}, line {number}")
        rows[int(row["step"])] = row
    # A skipped fp16 step has an infinite loss, which no axis can show.
    return [rows[step] for step in sorted(rows) if math.isfinite(rows[step]["loss"])]


def _read_line(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise FolderError(f"not JSON: {error.msg}", place=place, value=line) from None
    missing = [name for name in _NEEDED if not isinstance(row, dict) or name not in row]
    if missing:
        raise FolderError(f"the step lacks {', '.join(missing)}", place=place, value=line)
    return dict(row)
