"""Finds the input files: folders, globs and package paths become a sorted list of files."""

import codecs
import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import DataSettings, resolve_location
from pipeline.contract.errors import DataError
from pipeline.contract.folder import sha256_file

FORMAT_BY_ENDING = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
}
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One input file."""

    path: Path
    name: str
    """The file as the job names it; what messages and the manifest show."""
    format: str
    """``csv``, ``tsv``, ``jsonl``, ``parquet`` or ``conll``."""
    sha256: str


def find_sources(data: DataSettings) -> list[SourceFile]:
    """Return the files that ``data.files`` means, in the order given, each file once.

    Inside a folder or glob the order is by name. A folder gives, at any depth, the files
    whose ending is known (of ``data.format`` if that is set) and that are not hidden.

    Raises:
        DataError: a location holds no file, a file's format is not known, a file cannot
            be read, or a text file is UTF-16.
        ConfigError: a package is not installed.
    """
    found: dict[Path, SourceFile] = {}
    for location in data.files:
        for path, name in _expand(location, data.format):
            if path.resolve() not in found:
                found[path.resolve()] = _describe(path, name, data.format)
    return list(found.values())


def _expand(location: str, kind: str) -> Iterator[tuple[Path, str]]:
    root = Path(resolve_location(location))
    if root.is_file():
        yield root, location
        return
    if root.is_dir():
        files = sorted(path for path in root.rglob("*") if _is_taken(path, root, kind))
        named = [(path, f"{location.rstrip('/')}/{_below(path, root)}") for path in files]
    else:
        matches = sorted(glob.glob(str(root), recursive=True))
        named = [(Path(match), match) for match in matches if Path(match).is_file()]
    if not named:
        raise DataError(
            "no input file was found",
            place=location,
            remedy="Name a file, a glob, or a folder with files that end in "
            f"{', '.join(FORMAT_BY_ENDING)}, in data.files.",
        )
    yield from named


def _below(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _is_taken(path: Path, root: Path, kind: str) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    ending_kind = FORMAT_BY_ENDING.get(path.suffix.lower())
    return path.is_file() and not is_hidden and ending_kind in _kinds(kind)


def _kinds(kind: str) -> set[str]:
    return set(FORMAT_BY_ENDING.values()) if kind == "auto" else {kind}


def _describe(path: Path, name: str, kind: str) -> SourceFile:
    known = FORMAT_BY_ENDING.get(path.suffix.lower()) if kind == "auto" else kind
    if known is None:
        raise DataError(
            f"the ending {path.suffix!r} does not tell the format",
            place=name,
            remedy="Set data.format to csv, tsv, jsonl, parquet or conll.",
        )
    try:
        sha256 = sha256_file(path)
        with path.open("rb") as file:
            start = file.read(2)
    except OSError as error:
        raise DataError(
            f"the file cannot be read: {error.strerror}", place=name, remedy="Check its rights."
        ) from error
    if known != "parquet" and start in _WIDE_MARKS:
        raise DataError(
            "the file is UTF-16",
            place=name,
            remedy=f"Convert it: iconv -f UTF-16 -t UTF-8 {path.name}.",
        )
    return SourceFile(path=path, name=name, format=known, sha256=sha256)
