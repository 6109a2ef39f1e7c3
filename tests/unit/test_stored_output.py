"""A job's output is kept elsewhere, whole at each moment, and found again on another machine."""

import json
import threading
import time

import fsspec
import pytest
from train_samples import build_job

from pipeline.contract.errors import ConfigError, FolderError, TextlaneError
from pipeline.stored_output import MARK_NAME, OutputStorage, stored_output


@pytest.fixture(params=["memory", "file"])
def place(request, tmp_path):
    """Return a file system and a place in it; other file systems stand behind the same calls."""
    file_system = fsspec.filesystem(request.param)
    root = "/jobs/a" if request.param == "memory" else str(tmp_path / "bucket/jobs/a")
    yield file_system, root
    if request.param == "memory" and file_system.exists("/jobs"):
        file_system.rm("/jobs", recursive=True)


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def files_of(folder):
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return {name: (folder / name).read_text() for name in names if name != MARK_NAME}


def test_what_one_machine_stores_another_fetches(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, checkpoint__step_1="weights", checkpoint__manifest="m", report__a__b="x")

    assert OutputStorage(here, *place).push() == 3
    assert OutputStorage(there, *place).fetch() == 3

    assert files_of(there) == files_of(here)


def test_only_what_changed_goes_again_and_what_is_gone_goes_away(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    storage = OutputStorage(here, *place)
    write(here, a="1", b="2", c="3")
    storage.push()
    (here / "a").unlink()
    write(here, b="22")

    assert storage.push() == 1
    assert storage.push() == 0

    OutputStorage(there, *place).fetch()
    assert files_of(there) == {"b": "22", "c": "3"}


def test_an_older_folder_is_brought_up_and_a_newer_one_is_left_alone(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, a="1", old="x")
    OutputStorage(here, *place).push()
    OutputStorage(there, *place).fetch()
    write(there, a="2")
    (there / "old").unlink()
    OutputStorage(there, *place).push()
    write(there, a="3")  # Not stored yet, as after a kill.

    assert OutputStorage(there, *place).fetch() == 0
    assert OutputStorage(here, *place).fetch() == 1

    assert files_of(there) == {"a": "3"}
    assert files_of(here) == {"a": "2"}


def test_locks_and_half_written_files_stay_here(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, a="1")
    for name in (".lock", ".a.partial-1", "checkpoint/.step_1.x", ".b.partial-2/c"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("no")

    OutputStorage(here, *place).push()
    OutputStorage(there, *place).fetch()

    assert files_of(there) == {"a": "1"}


class Interrupted(Exception):
    pass


class FailingAfter:
    """A file system that breaks off after some changes to it, as a killed command does."""

    def __init__(self, file_system, num_changes):
        self._file_system, self._left = file_system, num_changes

    def __getattr__(self, name):
        call = getattr(self._file_system, name)
        if name not in {"put_file", "pipe_file", "rm_file"}:
            return call

        def counted(*args, **kwargs):
            if self._left == 0:
                raise Interrupted
            self._left -= 1
            return call(*args, **kwargs)

        return counted


def write_step(folder, step):
    """Write a checkpoint and its manifest; the one before goes, as rolling ones do."""
    write(folder, **{f"checkpoint__step_{step}.pt": f"weights {step}"})
    (folder / "checkpoint/manifest.json").write_text(json.dumps({"file": f"step_{step}.pt"}))
    for path in (folder / "checkpoint").glob("step_*.pt"):
        if path.name != f"step_{step}.pt":
            path.unlink()


@pytest.mark.parametrize("num_changes", range(8))
def test_however_storing_breaks_off_what_is_stored_is_whole(place, tmp_path, num_changes):
    here, there = tmp_path / "here", tmp_path / "there"
    file_system, root = place
    write_step(here, 1)
    OutputStorage(here, *place).push()
    write_step(here, 2)
    write(here, report__a="a")

    try:
        OutputStorage(here, FailingAfter(file_system, num_changes), root).push()
    except Interrupted:
        assert num_changes < 5
    OutputStorage(there, *place).fetch()

    named = json.loads((there / "checkpoint/manifest.json").read_text())["file"]
    assert (there / "checkpoint" / named).read_text() == f"weights {named[5]}"
    OutputStorage(here, *place).push()
    again = tmp_path / "again"
    OutputStorage(again, *place).fetch()
    assert files_of(again) == files_of(here)


def test_a_checkpoint_pruned_while_it_is_stored_leaves_the_stored_one_whole(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    file_system, root = place

    class Pruning(FailingAfter):
        def __getattr__(self, name):
            if name == "put_file" and (here / "checkpoint/step_2.pt").exists():
                write_step(here, 3)
            return getattr(file_system, name)

    write_step(here, 1)
    OutputStorage(here, *place).push()
    write_step(here, 2)

    assert OutputStorage(here, Pruning(file_system, -1), root).push() == 0

    OutputStorage(there, *place).fetch()
    assert json.loads((there / "checkpoint/manifest.json").read_text()) == {"file": "step_1.pt"}
    assert (there / "checkpoint/step_1.pt").read_text() == "weights 1"


def test_a_fetch_that_broke_off_is_done_again(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    file_system, root = place
    write(here, a="1", b="2")
    OutputStorage(here, *place).push()

    class Broken:
        def __getattr__(self, name):
            if name == "get_file":
                raise Interrupted
            return getattr(file_system, name)

    with pytest.raises(Interrupted):
        OutputStorage(there, Broken(), root).fetch()
    assert OutputStorage(there, *place).fetch() == 2

    assert files_of(there) == files_of(here)


def test_a_folder_with_a_job_of_its_own_is_not_overwritten(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, a="1")
    write(there, a="mine")
    OutputStorage(here, *place).push()

    with pytest.raises(FolderError, match="neither was made from the other"):
        OutputStorage(there, *place).fetch()

    assert files_of(there) == {"a": "mine"}


def test_files_of_others_are_neither_taken_nor_removed(place, tmp_path):
    here = tmp_path / "here"
    file_system, root = place
    file_system.makedirs(root, exist_ok=True)
    file_system.pipe_file(f"{root}/photo.jpg", b"of my cat")
    write(here, a="1")
    storage = OutputStorage(here, *place)

    for call in (storage.fetch, storage.push):
        with pytest.raises(FolderError, match="no textlane job stored there"):
            call()

    assert file_system.cat_file(f"{root}/photo.jpg") == b"of my cat"


def test_a_second_job_that_stores_meanwhile_is_noticed(place, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, a="1")
    OutputStorage(here, *place).push()
    OutputStorage(there, *place).fetch()
    write(there, a="2")
    OutputStorage(there, *place).push()
    write(here, a="3")

    with pytest.raises(FolderError, match="another command has written"):
        OutputStorage(here, *place).push()


def stored_job(folder, storage_path, **changes):
    update = {"storage_path": str(storage_path), **changes}
    return build_job(folder).model_copy(update=update)


def test_without_a_storage_path_nothing_is_stored(tmp_path):
    with stored_output(build_job(tmp_path / "here")):
        write(tmp_path / "here", a="1")

    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize("ending", [None, KeyboardInterrupt, FolderError])
def test_it_is_stored_at_the_end_however_it_ends(tmp_path, ending):
    job = stored_job(tmp_path / "here", tmp_path / "kept")

    def work():
        with stored_output(job):
            write(tmp_path / "here", a="1")
            if ending:
                raise ending("stopped")

    if ending:
        with pytest.raises(ending):
            work()
    else:
        work()

    assert files_of(tmp_path / "kept") == {"a": "1"}


def test_while_it_works_what_is_new_is_stored_again_and_again(tmp_path):
    job = stored_job(tmp_path / "here", f"file://{tmp_path}/kept", storage_every_s=0.01)
    kept = tmp_path / "kept"

    with stored_output(job):
        for text in ("1", "22", "333"):
            write(tmp_path / "here", a=text)
            deadline = time.monotonic() + 20
            while not kept.is_dir() or files_of(kept) != {"a": text}:
                assert time.monotonic() < deadline
                time.sleep(0.005)

    assert not any(thread.name == "stored-output" for thread in threading.enumerate())


def test_a_place_that_cannot_be_written_is_told_before_any_work(tmp_path):
    (tmp_path / "kept").write_text("a file where a folder should be")
    job = stored_job(tmp_path / "here", tmp_path / "kept")

    with pytest.raises(FolderError, match="storage_path"), stored_output(job):
        pytest.fail("it began to work")


@pytest.mark.parametrize("stored", ["here", "here/deeper", "."])
def test_a_place_in_the_output_or_around_it_is_refused(tmp_path, stored):
    job = stored_job(tmp_path / "here", tmp_path / stored)

    with pytest.raises(ConfigError, match="one is in the other"), stored_output(job):
        pytest.fail("it began to work")


@pytest.mark.parametrize("location", ["what://bucket/a", "s3://bucket/a"])
def test_a_protocol_that_cannot_be_used_says_what_is_missing(tmp_path, location):
    try:
        import s3fs  # noqa: F401 - only whether it is here
    except ImportError:
        pass
    else:
        pytest.skip("s3fs is installed")
    job = stored_job(tmp_path / "here", location)

    with pytest.raises(TextlaneError, match=r"protocol|not installed"), stored_output(job):
        pytest.fail("it began to work")
