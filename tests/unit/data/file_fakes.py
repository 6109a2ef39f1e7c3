"""File systems that fail in known ways."""

import errno
import io

from fsspec import AbstractFileSystem


class LockedFileSystem(AbstractFileSystem):
    """Shows files that may not be opened, and a folder ``closed`` that may not be listed."""

    protocol = "locked"

    def info(self, path, **kwargs):
        if path == "closed":
            raise ValueError("no credentials")
        return {"name": path, "size": 1, "type": "file"}

    def ls(self, path, detail=True, **kwargs):
        return []

    def _open(self, path, mode="rb", **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")


class FailingFileSystem(AbstractFileSystem):
    """Opens files whose bytes stop with an error of the disk."""

    protocol = "failing"

    def _open(self, path, mode="rb", **kwargs):
        return _FailingFile()


class _FailingFile(io.RawIOBase):
    def __init__(self):
        self._start = b"text,label\na,1\n"

    def readable(self):
        return True

    def readinto(self, buffer):
        if not self._start:
            raise OSError(errno.EIO, "Input/output error")
        start, self._start = self._start, b""
        buffer[: len(start)] = start
        return len(start)
