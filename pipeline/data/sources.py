"""Finds the job's input files, in order, and looks at what each is."""

import codecs
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from pipeline.config import DataSettings
from pipeline.contract.errors import DataError
from pipeline.data.locations import FORMAT_BY_ENDING, FoundFile, find_files
from pipeline.data.source_file import SourceFile, open_bytes, sha256_of

_CODECS = {"auto": "utf-8-sig", "utf-8": "utf-8-sig", "latin-1": "latin-1", "cp1252": "cp1252"}
# UTF-32's little-endian mark begins with UTF-16's, so it comes first.
_WIDE_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

__all__ = ["SourceFile", "find_sources"]


def find_sources(
    data: DataSettings,
    *,
    own: Sequence[Path] = (),
    say: Callable[[str], None] = lambda text: None,
) -> list[SourceFile]:
    """Return the files of the job: ``files``, then ``validation_files``, then ``test_files``.

    Within a list they stand as named, within a folder or glob by name. The rows of
    ``files`` are given to train when both others are given; else each row's split is
    still to be found.

    Args:
        data: names and describes the files.
        own: files and folders that the job itself writes; what a folder or glob holds of them
            is left out, or a second run would read the output of the first.
        say: called with a sentence for people about what was left out.

    Raises:
        DataError: a location holds no file but the job's own, a file is named twice, its format
            is not known, it cannot be read, or its first bytes contradict ``data.encoding``.
        ConfigError: a package is not installed.
    """
    formats = sorted(set(FORMAT_BY_ENDING.values())) if data.format == "auto" else [data.format]
    rest_is_train = bool(data.validation_files and data.test_files)
    lists = (
        ("data.files", data.files, "train" if rest_is_train else None),
        ("data.validation_files", data.validation_files, "validation"),
        ("data.test_files", data.test_files, "test"),
    )
    named: dict[Hashable, str] = {}
    sources = []
    for setting, locations, split in lists:
        for location in locations:
            found = find_files(location, formats=formats, setting=setting)
            for file in _without_own(found, location, own=own, say=say):
                _demand_new(file, f"{setting} ({location})", named)
                sources.append(_describe(file, data, split))
    return sources


def _without_own(
    found: Sequence[FoundFile],
    location: str,
    *,
    own: Sequence[Path],
    say: Callable[[str], None],
) -> list[FoundFile]:
    real = [os.path.realpath(path) for path in own]
    # A file that is named itself is meant.
    kept = [f for f in found if f.name == location or not any(map(f.is_within, real))]
    if not kept:
        raise DataError(
            "there is no input file but those that the job itself wrote",
            place=location,
            remedy="Name the files to read, or set another output_dir.",
        )
    if num_own := len(found) - len(kept):
        files = "1 file" if num_own == 1 else f"{num_own:,} files"
        say(f"left out of {location}: {files} that the job itself wrote into output_dir")
    return kept


def _demand_new(file: FoundFile, by: str, named: dict[Hashable, str]) -> None:
    if file.identity in named:
        raise DataError(
            f"the file is named twice: {named[file.identity]} and {file.name} by {by}",
            place=file.name,
            remedy="Take one of them out.",
        )
    named[file.identity] = f"{file.name} by {by}"


def _describe(file: FoundFile, data: DataSettings, split: str | None) -> SourceFile:
    known = FORMAT_BY_ENDING.get(file.ending) if data.format == "auto" else data.format
    if known is None:
        raise DataError(
            f"the ending {file.ending!r} does not tell the format",
            place=file.name,
            remedy="Set data.format to csv, tsv, jsonl, parquet or conll.",
        )
    if known == "parquet" and file.compression:
        raise DataError(
            f"Parquet inside {file.compression} cannot be read in parts",
            place=file.name,
            remedy="Decompress it; Parquet compresses its own columns.",
        )
    sha256 = sha256_of(file.file_system, file.path, file.name)
    if known != "parquet":
        _check_marks(file, data.encoding)
    return SourceFile(
        file_system=file.file_system,
        path=file.path,
        name=file.name,
        format=known,
        compression=file.compression,
        codec=_CODECS[data.encoding],
        given_split=split,
        sha256=sha256,
    )


def _check_marks(file: FoundFile, encoding: str) -> None:
    with open_bytes(file.file_system, file.path, file.name, file.compression) as content:
        start = content.read(4)
    wide = next((name for mark, name in _WIDE_MARKS.items() if start.startswith(mark)), None)
    if wide:
        raise DataError(
            f"the file is {wide}",
            place=file.name,
            remedy=f"Convert it: iconv -f {wide} -t UTF-8 {file.path.rpartition('/')[2]}.",
        )
    if start.startswith(codecs.BOM_UTF8) and encoding in ("latin-1", "cp1252"):
        raise DataError(
            f"the file begins with UTF-8's byte order mark, data.encoding is {encoding}",
            place=file.name,
            remedy="Set data.encoding to auto.",
        )
