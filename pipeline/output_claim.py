"""Takes a job's output folder for one command at a time, or says why it cannot be used."""

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.config import JobConfig
from pipeline.contract.errors import ConfigError, FolderError
from pipeline.contract.folder import refuse_file_in_place_of

LOCK_NAME = ".lock"
_LEFT_BY_A_KILL = (".*.partial-*", ".sensitivity-*", ".sensitivity.json.*")
"""What commands write beside their folders and remove when they end, unless they are killed."""


@contextmanager
def claim_output(output_dir: str) -> Iterator[None]:
    """Hold the exclusive lock of an output folder for the length of the block.

    The folder is made if it is missing. The kernel releases the lock when this process
    ends, however it ends; the lock's file then stays and does no harm. What a killed command
    left beside its folder is removed.

    Raises:
        ConfigError: the folder cannot be made, written to or locked.
        FolderError: another command holds it.
    """
    folder = Path(output_dir).absolute()
    was_there = folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")
        lock = _open_lock(folder / LOCK_NAME)
    except OSError as error:
        raise ConfigError(
            f"nothing can be written to {folder}: {error.strerror}",
            place="output_dir",
            value=output_dir,
            remedy="Set output_dir to a folder that may be written to; a relative path starts "
            "where the command runs.",
        ) from error
    try:
        _remove_leftovers(folder)
        yield
    finally:
        # Removed while it is still held: who opened it meanwhile looks whether it is there.
        (folder / LOCK_NAME).unlink(missing_ok=True)
        os.close(lock)
        if not was_there:
            with suppress(OSError):  # Not empty: the stage left something in it.
                folder.rmdir()


def _remove_leftovers(folder: Path) -> None:
    for pattern in _LEFT_BY_A_KILL:
        for left in folder.glob(pattern):
            name = left.name.removeprefix(".").partition(".partial-")[0]
            # The kill may have hit between two renames; then it is the only one there is.
            if left.suffix == ".old" and not (folder / name).exists():
                continue
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def refuse_files_in_place_of(job: JobConfig, stages: Sequence[str]) -> None:
    """Check that nothing but a folder is where each of these stages writes its own.

    Before the first of them: the last one may come hours later.

    Raises:
        FolderError: a file is.
    """
    folders = {
        "prepare": job.shards_dir,
        "train": job.checkpoint_dir,
        "evaluate": job.report_dir,
        "export": job.bundle_dir,
    }
    for stage in stages:
        refuse_file_in_place_of(folders[stage])


def _open_lock(path: Path) -> int:
    """Return the descriptor of the lock's file, locked; programs started later do not get it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, handle):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
                return handle
        except BlockingIOError:
            holder = os.pread(handle, 256, 0).decode(errors="replace").split()
            os.close(handle)
            raise _taken(path.parent, *holder[:2]) from None
        except OSError:
            os.close(handle)
            raise
        os.close(handle)  # Its holder removed the file between our two calls.


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _taken(folder: Path, pid: str = "unknown", host: str = "this machine") -> FolderError:
    return FolderError(
        f"another textlane command is at work in this folder: process {pid} on {host}",
        place=str(folder),
        remedy=f"Wait for it, stop it (`kill {pid}`), or set another output_dir.",
    )
