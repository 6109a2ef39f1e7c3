"""One input file: where it lies, what it holds, and how it is opened, on any machine."""

import hashlib
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, TextIO, cast

from fsspec import AbstractFileSystem
from fsspec.core import OpenFile

from pipeline.contract.errors import DataError

_BLOCK_BYTES = 1 << 20
_BROKEN_FILE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a file raises when its bytes cannot be had; gzip and bz2 raise the first two."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One input file; it can be pickled and opens itself where it arrives."""

    file_system: AbstractFileSystem
    path: str
    """Path in the file system; absolute for local files."""
    name: str
    """The file as the job names it; what messages and the manifest show."""
    format: str
    """``csv``, ``tsv``, ``jsonl``, ``parquet`` or ``conll``."""
    compression: str | None
    """fsspec's name of the compression around the format."""
    codec: str
    """Python's codec of its text; says nothing about Parquet."""
    given_split: str | None
    """Split of all its rows, None where each row's is still to be found."""
    sha256: str
    """Hash of the file's bytes as they are stored."""

    @contextmanager
    def open_binary(self) -> Iterator[BinaryIO]:
        """Open the decompressed bytes for reading.

        Raises:
            DataError: the bytes cannot be read, when opening or later inside the block.
        """
        with open_bytes(self.file_system, self.path, self.name, self.compression) as file:
            yield file

    @contextmanager
    def open_text(self, *, newline: str) -> Iterator[TextIO]:
        r"""Open the text for reading, without its byte order mark.

        Bytes that the encoding does not know come as lone surrogates, so that they cost
        their own row and not the file.

        Args:
            newline: ``"\n"`` splits lines there alone, ``""`` also at ``\r``; none is changed.

        Raises:
            DataError: the bytes cannot be read, when opening or later inside the block.
        """
        with self.open_binary() as file:
            yield io.TextIOWrapper(
                file, encoding=self.codec, errors="surrogateescape", newline=newline
            )


@contextmanager
def open_bytes(
    file_system: AbstractFileSystem, path: str, name: str, compression: str | None
) -> Iterator[BinaryIO]:
    """Open a file's bytes, decompressed, under the name that messages give it.

    Raises:
        DataError: the bytes cannot be read, when opening or later inside the block.
    """
    try:
        with OpenFile(file_system, path, mode="rb", compression=compression) as file:
            # Remote and decompressing files find line ends in Python; this one does in C.
            yield cast(BinaryIO, io.BufferedReader(file, _BLOCK_BYTES))
    except _BROKEN_FILE as error:
        raise unreadable(name, error, is_compressed=compression is not None) from error


def sha256_of(file_system: AbstractFileSystem, path: str, name: str) -> str:
    """Return the hex sha256 of a file's bytes as they are stored.

    Raises:
        DataError: the bytes cannot be read.
    """
    digest = hashlib.sha256()
    with open_bytes(file_system, path, name, compression=None) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def unreadable(name: str, error: Exception, *, is_compressed: bool = False) -> DataError:
    """Return the error for a file or folder that the machine cannot read."""
    cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # A number in errno means that the machine refused, not that the content is wrong.
    is_broken = is_compressed and getattr(error, "errno", None) is None
    return DataError(
        f"the compressed file is broken: {cause}" if is_broken else f"it cannot be read: {cause}",
        place=name,
        remedy="Compress or fetch it again; `gzip -t`, `bzip2 -t` or `xz -t` tests it."
        if is_broken
        else "Check that it is there and may be read.",
    )
