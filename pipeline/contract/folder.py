"""Folders with a manifest: hashing, atomic writing and checked reading."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.contract.errors import AlteredFileError, FolderError, MissingFileError

MANIFEST_NAME = "manifest.json"
_BROKEN_REMEDY = "Put the file back as it was, or have the folder written again."
_BLOCK_BYTES = 1 << 20


def sha256_file(path: Path) -> str:
    """Return the hex sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values have equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(value: Any) -> str:
    """Return the hex sha256 of a JSON value, independent of key order."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def hash_files(folder: Path) -> dict[str, str]:
    """Return relative POSIX path → sha256 of every file below a folder but its manifest."""
    files = (path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in files}
    named.pop(MANIFEST_NAME, None)
    return {name: sha256_file(named[name]) for name in sorted(named)}


def write_text_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old bytes or the new, never a part.

    Raises:
        FolderError: a device, pipe or folder is there, which a file would replace.
    """
    if path.exists() and not path.is_file():
        raise FolderError(
            "this is no regular file, and writing would put one in its place",
            place=str(path),
            remedy="Name a file.",
        )
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write ``manifest.json`` of a folder, atomically."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    write_text_atomically(folder / MANIFEST_NAME, text)


def read_json(path: Path) -> Any:
    """Return a JSON file's value.

    Raises:
        MissingFileError: the file is not there.
        FolderError: it cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(
            "the file is missing",
            place=str(path),
            remedy="Run the stage that writes this folder, or name another folder.",
        ) from None
    except OSError as error:
        raise FolderError(
            f"the file cannot be read: {error.strerror}", place=str(path), remedy=_BROKEN_REMEDY
        ) from error
    except (ValueError, RecursionError) as error:
        # ValueError: also bytes that are no UTF-8 and numbers too long for the parser.
        raise FolderError(f"not JSON: {error}", place=str(path), remedy=_BROKEN_REMEDY) from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return a folder's manifest.

    Raises:
        MissingFileError: the folder or its manifest is not there.
        FolderError: the manifest cannot be read or is not a JSON object.
    """
    path = folder / MANIFEST_NAME
    if folder.exists() and not folder.is_dir():
        raise MissingFileError(
            "this is a file, not a folder",
            place=str(folder),
            remedy=f"Name the folder that holds {MANIFEST_NAME}.",
        )
    if not path.exists() and (below := sorted(folder.glob(f"*/{MANIFEST_NAME}"))):
        raise MissingFileError(
            "the file is missing",
            place=str(path),
            remedy=f"Name one of the folders in it: {', '.join(str(p.parent) for p in below)}.",
        )
    manifest = read_json(path)
    if not isinstance(manifest, dict):
        raise FolderError(
            "the manifest is not a JSON object",
            place=str(path),
            value=manifest,
            remedy=_BROKEN_REMEDY,
        )
    return manifest


def verify_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """Check that every named file is there with its sha256.

    Raises:
        MissingFileError: a named file is not there.
        AlteredFileError: a file's bytes are not those that were written.
        FolderError: a name leads out of the folder.
    """
    root = folder.resolve()
    for name, expected in hashes.items():
        path = folder / name
        if not path.resolve().is_relative_to(root):
            raise FolderError("the manifest names a file outside its folder", value=name)
        if not path.is_file():
            raise MissingFileError(
                "the file is missing", place=str(path), remedy="Write the folder again."
            )
        actual = sha256_file(path)
        if actual != expected:
            raise AlteredFileError(
                f"the file was changed after it was written: sha256 is not {expected}",
                place=str(path),
                value=actual,
                remedy="Write the folder again; do not edit its files by hand.",
            )


def refuse_file_in_place_of(folder: Path) -> None:
    """Check that a folder to be written is not there as something else.

    Raises:
        FolderError: it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise FolderError(
            "the output is a file, not a folder",
            place=str(folder),
            remedy="Move it away or set another output_dir.",
        )


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder beside ``target``; put it in the target's place on success.

    A process killed inside the block leaves ``target`` as it was. What such a kill
    leaves behind (``.NAME.partial-*``) is removed by the next call for the same target.
    A link stays; the folder that it leads to is replaced.

    Raises:
        FolderError: the target exists and is not a folder.
    """
    refuse_file_in_place_of(target)
    if target.is_symlink():
        target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    _recover_old(target)
    for left in target.parent.glob(f".{target.name}.partial-*"):
        shutil.rmtree(left)
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.partial-"))
    partial.chmod(0o755)
    try:
        yield partial
        _sync_tree(partial)
        _swap(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sync_folder(target.parent)


def _recover_old(target: Path) -> None:
    # A kill between the two renames of _swap() leaves the old folder only under this name.
    if not target.exists():
        for aside in target.parent.glob(f".{target.name}.partial-*.old"):
            os.rename(aside, target)
            return


def _swap(partial: Path, target: Path) -> None:
    # A non-empty folder cannot be replaced in one call; the old one steps aside first.
    aside = partial.with_name(f"{partial.name}.old")
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(partial, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
