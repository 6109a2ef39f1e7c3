"""The release folder: the state, the evidence and the history, each safe against a kill.

``state.json`` and ``evidence.json`` are replaced as a whole, ``history.jsonl`` grows by a line for
each release that ended. A record is in the state before it is in the history, so that one which
was lost in between is written when the folder is opened again.
"""

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from pipeline.contract.errors import FolderError, SchemaVersionError
from pipeline.contract.folder import read_json, write_text_atomically
from serve_app.release.evidence import Evidence
from serve_app.release.record import ReleaseRecord
from serve_app.release.state import ReleaseState

RELEASE_SCHEMA_VERSION = 1
STATE_NAME = "state.json"
EVIDENCE_NAME = "evidence.json"
HISTORY_NAME = "history.jsonl"
_REMEDY = (
    "Put back a copy of it. Without one, move the whole folder away: the service then starts with "
    "the bundle of its Serve file as stable, and without history."
)
_STATE: TypeAdapter[ReleaseState] = TypeAdapter(ReleaseState)
_EVIDENCE: TypeAdapter[Evidence] = TypeAdapter(Evidence)
_RECORD: TypeAdapter[ReleaseRecord] = TypeAdapter(ReleaseRecord)
_ValueT = TypeVar("_ValueT")


class ReleaseStore:
    """Reads and writes one release folder; the desk alone writes."""

    def __init__(self, folder: Path) -> None:
        """Take a folder, which is made at the first write."""
        self.folder = folder

    def read_state(self) -> ReleaseState | None:
        """Return the stored state; None: there never was one.

        Raises:
            FolderError: the file is damaged; names it and the remedy.
            SchemaVersionError: a newer or unknown schema wrote it.
        """
        return self._read(STATE_NAME, _STATE)

    def write_state(self, state: ReleaseState) -> None:
        """Store a state, and the record of a release that it ended; both survive a power cut.

        Raises:
            FolderError: the folder cannot be written.
        """
        self._write(STATE_NAME, _STATE, state)
        if state.last is not None:
            self._complete_history(state.last)

    def recover(self) -> ReleaseState | None:
        """Return the stored state, after completing a history that a kill cut short.

        Raises:
            FolderError: a file is damaged.
            SchemaVersionError: a newer or unknown schema wrote it.
        """
        state = self.read_state()
        if state is not None and state.last is not None:
            self._complete_history(state.last)
        return state

    def read_evidence(self, release_id: str) -> Evidence | None:
        """Return the stored evidence of a release; None: there is none of this one.

        Raises:
            FolderError: the file is damaged. Evidence only saves time: begin without it.
            SchemaVersionError: a newer or unknown schema wrote it.
        """
        evidence = self._read(EVIDENCE_NAME, _EVIDENCE)
        return evidence if evidence and evidence.release_id == release_id else None

    def write_evidence(self, evidence: Evidence) -> None:
        """Store evidence, so that a restart need not observe a step anew.

        Raises:
            FolderError: the folder cannot be written.
        """
        self._write(EVIDENCE_NAME, _EVIDENCE, evidence)

    def read_history(self) -> tuple[ReleaseRecord, ...]:
        """Return the records of all releases that ended, the oldest first.

        Raises:
            FolderError: a line is damaged; names it. A last line that a kill cut short is none.
            SchemaVersionError: a newer or unknown schema wrote a line.
        """
        path = self.folder / HISTORY_NAME
        if not path.exists():
            return ()
        *lines, _ = _read_text(path).split("\n")
        return tuple(
            _parse(_parse_line(line, path, number), _RECORD, place=f"{path}:{number}")
            for number, line in enumerate(lines, start=1)
        )

    def _complete_history(self, record: ReleaseRecord) -> None:
        if any(known.release_id == record.release_id for known in self.read_history()):
            return
        line = json.dumps(_envelope(_RECORD, record), ensure_ascii=True)
        path = self.folder / HISTORY_NAME
        # What a kill left of a line is dropped with the rewriting; a history is a few hundred kB.
        text = _read_text(path) if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        self._write_text(HISTORY_NAME, f"{whole}{line}\n")

    def _read(self, name: str, adapter: TypeAdapter[_ValueT]) -> _ValueT | None:
        path = self.folder / name
        if not path.exists():
            return None
        try:
            values = read_json(path)
        except FolderError as error:
            raise FolderError(error.problem, place=error.place, remedy=_REMEDY) from error
        return _parse(values, adapter, place=str(path))

    def _write(self, name: str, adapter: TypeAdapter[_ValueT], value: _ValueT) -> None:
        self._write_text(name, json.dumps(_envelope(adapter, value), ensure_ascii=True) + "\n")

    def _write_text(self, name: str, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text_atomically(self.folder / name, text)
        except OSError as error:
            raise FolderError(
                f"the release folder cannot be written: {error.strerror}",
                place=str(self.folder / name),
                remedy="Make room or grant the right to write there, or set release_dir.",
            ) from error


def default_release_dir(bundle: Path) -> Path:
    """Return the release folder beside a bundle's folder."""
    plain = Path(os.path.abspath(bundle))
    return plain.with_name(f"{plain.name}.release")


def _envelope(adapter: TypeAdapter[_ValueT], value: _ValueT) -> dict[str, Any]:
    return {
        "schema_version": RELEASE_SCHEMA_VERSION,
        "content": adapter.dump_python(value, mode="json"),
    }


def _parse(values: Any, adapter: TypeAdapter[_ValueT], *, place: str) -> _ValueT:
    version = values.get("schema_version") if isinstance(values, dict) else None
    if version != RELEASE_SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this version reads release folders of schema {RELEASE_SCHEMA_VERSION}",
            place=place,
            value=version,
            remedy=_REMEDY,
        )
    try:
        return adapter.validate_json(json.dumps(values.get("content")))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise FolderError(
            f"damaged: {field}: {first['msg']}", place=place, remedy=_REMEDY
        ) from None


def _parse_line(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise FolderError(f"not JSON: {error}", place=f"{path}:{number}", remedy=_REMEDY) from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(
            f"the file cannot be read: {error}", place=str(path), remedy=_REMEDY
        ) from error
