"""Keeps a job's output folder on a file system that outlives the machine, such as a bucket.

At the start an empty or older output folder is brought up to what is stored; while the command
works, what is new is stored every minute, and at its end. Whatever is stored is whole at each
moment: first the files that a manifest names, then the manifest, then the removal of the rest.
"""

import json
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import JobConfig
from pipeline.contract.errors import ConfigError, FolderError, TextlaneError
from pipeline.contract.folder import MANIFEST_NAME, write_text_atomically

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

MARK_NAME = ".stored.json"
"""Tells, here and there, which state was stored last."""


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """The state that a folder had when it was last stored or fetched."""

    generation: int
    """Rises with each storing; 0 while a fetch is under way."""
    files: dict[str, list[int]]
    """Name → bytes and time of change in ns, as they were in the output folder."""


class OutputStorage:
    """One output folder and where it is kept."""

    def __init__(self, folder: Path, file_system: "AbstractFileSystem", root: str) -> None:
        """Keep ``folder`` below ``root`` of the file system; nothing is read or written yet."""
        self._folder, self._file_system, self._root = folder, file_system, root.rstrip("/")

    def fetch(self) -> int:
        """Bring the folder up to what is stored; return how many files came.

        Raises:
            FolderError: both have a job's files, and none of them follows from the other.
        """
        stored, local = self._stored_mark(), self._local_mark()
        if stored is None:
            self._demand_empty()
        if stored is None or (local is not None and local.generation >= stored.generation):
            return 0
        here = set(_names_below(self._folder))
        if local is None and here:
            raise FolderError(
                f"the folder has files, and so has {self._root}, but neither was made from the "
                "other",
                place=str(self._folder),
                remedy="Empty the folder to go on from what is stored, or set another "
                "storage_path.",
            )
        self._write_local_mark(_Mark(generation=0, files={}))
        names = self._stored_names()
        for name in here - set(names):
            (self._folder / name).unlink()
        for name in _manifests_last(names):
            target = self._folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f".{target.name}.fetched")
            self._file_system.get_file(self._place(name), str(partial))
            partial.replace(target)
        self._write_local_mark(_Mark(generation=stored.generation, files=self._state(names)))
        return len(names)

    def push(self) -> int:
        """Store what is new or changed; return how many files went.

        A file that vanishes meanwhile puts off what names it to the next call.

        Raises:
            FolderError: another command has stored a job there since the last call.
        """
        before, stored = self._local_mark(), self._stored_mark()
        own = before.generation if before else 0
        if stored is not None and stored.generation != own:
            raise FolderError(
                f"another command has written to {self._root} since this one looked",
                place="storage_path",
                remedy="Let one job at a time have a storage_path.",
            )
        if stored is None:
            self._demand_empty()
            self._store_mark(_Mark(generation=own, files={}))
        # Manifests as they are before the files are listed: those name no file that comes later.
        manifests = {
            name: (self._folder / name).read_bytes()
            for name in _names_below(self._folder)
            if Path(name).name == MANIFEST_NAME
        }
        state = self._state(_names_below(self._folder))
        known = before.files if before and stored else {}
        changed = [name for name, stamp in state.items() if known.get(name) != stamp]
        gone = set(known) - set(state)
        if not changed and not gone:
            return 0
        if not self._upload(changed, manifests):
            return 0
        for name in gone:
            with suppress(FileNotFoundError):  # Removed by a call that was killed then.
                self._file_system.rm_file(self._place(name))
        mark = _Mark(generation=own + 1, files=state)
        self._store_mark(mark)
        self._write_local_mark(mark)
        return len(changed)

    def _upload(self, names: Iterable[str], manifests: dict[str, bytes]) -> bool:
        for name in _manifests_last(names):
            place = self._place(name)
            self._file_system.makedirs(place.rpartition("/")[0], exist_ok=True)
            try:
                if name in manifests:
                    self._file_system.pipe_file(place, manifests[name])
                else:
                    self._file_system.put_file(str(self._folder / name), place)
            except FileNotFoundError:
                if (self._folder / name).exists():
                    raise  # It is the other side that lacks something.
                return False
        return True

    def _demand_empty(self) -> None:
        if self._file_system.find(self._root):
            raise FolderError(
                f"{self._root} has files that no textlane job stored there",
                place="storage_path",
                remedy="Name a place of its own for each job.",
            )

    def _store_mark(self, mark: _Mark) -> None:
        self._file_system.makedirs(self._root, exist_ok=True)
        self._file_system.pipe_file(self._place(MARK_NAME), _as_bytes(mark))

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _stored_names(self) -> list[str]:
        found = self._file_system.find(self._root)
        names = [str(path).removeprefix(f"{self._root}/") for path in found]
        return sorted(name for name in names if name != MARK_NAME)

    def _state(self, names: Iterable[str]) -> dict[str, list[int]]:
        state = {}
        for name in names:
            try:
                found = (self._folder / name).stat()
            except FileNotFoundError:
                continue  # Removed since it was listed.
            state[name] = [found.st_size, found.st_mtime_ns]
        return state

    def _stored_mark(self) -> _Mark | None:
        self._file_system.invalidate_cache()
        try:
            return _as_mark(self._file_system.cat_file(self._place(MARK_NAME)))
        except FileNotFoundError:
            return None

    def _local_mark(self) -> _Mark | None:
        try:
            return _as_mark((self._folder / MARK_NAME).read_bytes())
        except FileNotFoundError:
            return None

    def _write_local_mark(self, mark: _Mark) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self._folder / MARK_NAME, _as_bytes(mark).decode())


def _as_bytes(mark: _Mark) -> bytes:
    return json.dumps({"generation": mark.generation, "files": mark.files}).encode()


def _as_mark(text: bytes) -> _Mark:
    value: dict[str, Any] = json.loads(text)
    return _Mark(generation=int(value["generation"]), files=dict(value["files"]))


def _names_below(folder: Path) -> list[str]:
    """Return the files' names; hidden ones are locks and what is half written."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(p.as_posix() for p in paths if not any(part[0] == "." for part in p.parts))


def _manifests_last(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (Path(name).name == MANIFEST_NAME, name))


@contextmanager
def stored_output(job: JobConfig) -> Iterator[None]:
    """Keep the job's output folder at its ``storage_path`` for the length of the block.

    What cannot be stored on the way is told once and tried again; at the end it is an error.

    Raises:
        ConfigError: the location cannot be used.
        FolderError: what is stored is of another job, or cannot be reached.
    """
    if job.storage_path is None:
        yield
        return
    # Imported when asked for: `--help` must not wait for it.
    from pipeline.data.locations import file_system_of

    with _told(job.storage_path):
        file_system, root = file_system_of(job.storage_path)
    _refuse_nesting(job, file_system, root)
    storage = OutputStorage(Path(job.output_dir), file_system, root)
    with _told(job.storage_path):
        num_files = storage.fetch()
    if num_files:
        print(f"fetched {num_files:,} files from {job.storage_path}", file=sys.stderr)
    with _pushing(storage, every_s=job.storage_every_s, location=job.storage_path):
        yield


def _refuse_nesting(job: JobConfig, file_system: "AbstractFileSystem", root: str) -> None:
    output, stored = Path(job.output_dir).resolve(), Path(root).resolve()
    is_nested = output.is_relative_to(stored) or stored.is_relative_to(output)
    if "file" in file_system.protocol and is_nested:
        raise ConfigError(
            f"it and output_dir {output} are one folder, or one is in the other",
            place="storage_path",
            value=job.storage_path,
            remedy="Name a place apart from output_dir.",
        )


@contextmanager
def _pushing(storage: OutputStorage, *, every_s: float, location: str) -> Iterator[None]:
    is_over = threading.Event()

    def push_on() -> None:
        told = ""
        while not is_over.wait(every_s):
            try:
                with _told(location):
                    storage.push()
            except TextlaneError as error:
                if str(error) != told:
                    print(f"warning: {error}", file=sys.stderr)
                told = str(error)

    thread = threading.Thread(target=push_on, name="stored-output", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        is_over.set()
        thread.join()
        try:
            with _told(location):
                storage.push()
        except TextlaneError as error:  # The other error is the one to be seen.
            print(f"warning: {error}", file=sys.stderr)
        raise
    is_over.set()
    thread.join()
    with _told(location):
        storage.push()


@contextmanager
def _told(location: str) -> Iterator[None]:
    try:
        yield
    except TextlaneError:
        raise
    except Exception as error:  # Each file system has its own errors, without a common type.
        raise FolderError(
            f"it cannot be read or written: {type(error).__name__}: {error}",
            place="storage_path",
            value=location,
            remedy="Make sure that the place may be written to; the same command goes on.",
        ) from error
