"""Turns a location of the job into files: local path, package path or filesystem URI."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NoReturn

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from pipeline.config import resolve_location
from pipeline.contract.errors import ConfigError, DataError
from pipeline.data.source_file import unreadable

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
COMPRESSION_BY_ENDING = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz"}
_GLOB_START = re.compile(r"[*?\[]")


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """One file that a location of the job means."""

    file_system: AbstractFileSystem
    path: str
    """Path in the file system; absolute for local files."""
    name: str
    """The file as the job names it."""

    @property
    def identity(self) -> tuple[AbstractFileSystem, str]:
        """Equal for two names of the same file; links to local files are followed."""
        return self.file_system, os.path.realpath(self.path) if self._is_local else self.path

    def is_within(self, folder: str) -> bool:
        """Whether it is this local file or below this local folder, named without links."""
        path = self.identity[1]
        return self._is_local and (path == folder or path.startswith(f"{folder}{os.sep}"))

    @property
    def _is_local(self) -> bool:
        return isinstance(self.file_system, LocalFileSystem)

    @property
    def compression(self) -> str | None:
        """The compression that the ending tells, as fsspec names it."""
        return COMPRESSION_BY_ENDING.get(PurePosixPath(self.path).suffix.lower())

    @property
    def ending(self) -> str:
        """The ending that tells the format, in lower case: ``.csv`` for ``a.CSV.gz``."""
        path = PurePosixPath(self.path)
        return PurePosixPath(path.stem if self.compression else path.name).suffix.lower()


def find_files(location: str, *, formats: Sequence[str], setting: str) -> list[FoundFile]:
    """Return the files of a location: itself, or a folder's or glob's in order of name.

    A folder gives, at any depth, the files that are not hidden and whose ending tells one
    of the formats. A glob gives every file that it matches, hidden ones only if it says so.

    Raises:
        DataError: nothing is found there, or the file system refuses.
        ConfigError: a package is not installed.
    """
    file_system, root = file_system_of(location)
    try:
        found = list(_expand(file_system, root, location, formats))
        if not found and not isinstance(file_system, LocalFileSystem):
            file_system.info(root)  # Says whether it is missing, or we were not let in.
    except FileNotFoundError:
        found = []
    except Exception as error:  # Each file system has its own errors, without a common type.
        raise unreadable(location, error) from error
    if not found:
        is_relative = isinstance(file_system, LocalFileSystem) and root != location
        raise DataError(
            "no input file was found" + (f" at {root}" if is_relative else ""),
            place=location,
            remedy=f"Name in {setting} a file, a glob, or a folder with files that end in "
            f"{', '.join(FORMAT_BY_ENDING)} (also {', '.join(COMPRESSION_BY_ENDING)}).",
        )
    return found


def file_system_of(location: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of a location and the path in it; absolute for local ones.

    Raises:
        ConfigError: a package is not installed, or nothing knows the protocol.
        DataError: to connect failed.
    """
    if "://" not in location or location.startswith("package://"):
        return LocalFileSystem(), os.path.abspath(resolve_location(location))
    try:
        file_system, path = fsspec.url_to_fs(location)
    except ImportError as error:
        _refuse_missing_package(location, error)
    except ValueError as error:
        raise ConfigError(
            f"the location cannot be used: {error}",
            value=location,
            remedy="Name a local path, package://… or a protocol that fsspec knows.",
        ) from error
    except Exception as error:  # As above: to connect may already fail.
        raise unreadable(location, error) from error
    return file_system, str(path)


def _refuse_missing_package(location: str, error: ImportError) -> NoReturn:
    # fsspec raises its own advice from the failed import, which alone names the module.
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    package = (cause.name or "").partition(".")[0].replace("_", "-")
    raise ConfigError(
        f"{location.partition('://')[0]}:// needs a package that is not installed",
        value=location,
        remedy=f"Run `pip install {package}`." if package else str(error),
    ) from error


def _expand(
    file_system: AbstractFileSystem, root: str, location: str, formats: Sequence[str]
) -> Iterator[FoundFile]:
    if file_system.isfile(root):
        yield FoundFile(file_system=file_system, path=root, name=location)
        return
    if file_system.isdir(root):
        folder, shown = f"{root.rstrip('/')}/", f"{location.rstrip('/')}/"
        paths, pattern = _list_folder(file_system, root), ""
    else:
        folder, shown = _before_glob(root), _before_glob(location)
        paths = [path for path in file_system.glob(root) if file_system.isfile(path)]
        pattern = root[len(folder) :]
    for path in sorted(paths):
        below = path.removeprefix(folder)
        file = FoundFile(file_system=file_system, path=path, name=shown + below)
        has_known_ending = FORMAT_BY_ENDING.get(file.ending) in formats
        if (pattern or has_known_ending) and (_is_hidden(pattern) or not _is_hidden(below)):
            yield file


def _list_folder(file_system: AbstractFileSystem, root: str) -> list[str]:
    if not isinstance(file_system, LocalFileSystem):
        return list(file_system.find(root))
    # fsspec's own walk leaves out, without a word, the folders that it may not read.
    paths = (
        os.path.join(folder, name)
        for folder, _, names in os.walk(root, onerror=_raise)
        for name in names
    )
    return [path for path in paths if os.path.isfile(path)]


def _raise(error: OSError) -> NoReturn:
    raise error


def _before_glob(pattern: str) -> str:
    """Return what stands before the first part with a wildcard, up to its slash."""
    start = _GLOB_START.search(pattern)
    return pattern[: pattern.rfind("/", 0, start.start() if start else None) + 1]


def _is_hidden(below: str) -> bool:
    return any(part.startswith(".") for part in below.split("/"))
