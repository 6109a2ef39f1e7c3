import errno
import subprocess

import pyarrow as pa
import pytest
from prepare_samples import build, job_for, write_reviews

from pipeline.contract.disk import explain_full_disk
from pipeline.contract.errors import FolderError


class FullDisk:
    """Opens files as Arrow does until so many bytes are written, then has no space left."""

    def __init__(self, free_bytes):
        self.free_bytes = free_bytes
        self._open = pa.OSFile

    def __call__(self, path, mode):
        return self._open(path, mode) if mode == "rb" else FullFile(self, path)


class FullFile:
    """A file on such a disk."""

    def __init__(self, disk, path):
        self._disk = disk
        self._file = open(path, "wb")  # noqa: SIM115 Closed by whoever got it.
        self.closed = False

    def write(self, content):
        self._disk.free_bytes -= len(content)
        if self._disk.free_bytes < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(content)

    def flush(self):
        self._file.flush()

    def close(self):
        self._file.close()
        self.closed = True


@pytest.mark.parametrize("free_bytes", [0, 3_000, 30_000])
def test_full_disk_names_place_and_remedy_and_leaves_nothing(tmp_path, monkeypatch, free_bytes):
    job = job_for(tmp_path, write_reviews(tmp_path / "a.csv"))
    monkeypatch.setattr(pa, "OSFile", FullDisk(free_bytes))

    with pytest.raises(FolderError, match=r"out/shards: the disk is full; .* Free space there"):
        build(job)

    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_old_shards_outlive_a_full_disk(tmp_path, monkeypatch):
    job = job_for(tmp_path, write_reviews(tmp_path / "a.csv"))
    manifest = build(job)
    monkeypatch.setattr(pa, "OSFile", FullDisk(30_000))

    with pytest.raises(FolderError, match="the disk is full"):
        build(job)

    monkeypatch.undo()
    assert build(job) == manifest


def test_other_trouble_with_files_stays_what_it_is(tmp_path):
    with pytest.raises(PermissionError), explain_full_disk(tmp_path, needs=""):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_disk_that_is_really_full_is_recognised(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        job = job_for(disk, write_reviews(tmp_path / "a.csv", rows=5000))

        with pytest.raises(FolderError, match="the disk is full"):
            build(job)

        assert list((disk / "out").iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)
