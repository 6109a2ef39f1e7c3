import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.errors import AlteredFileError, FolderError, MissingFileError
from pipeline.contract.folder import (
    atomic_folder,
    canonical_json,
    fingerprint,
    hash_files,
    read_manifest,
    sha256_file,
    verify_files,
    write_manifest,
    write_text_atomically,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "made"
    (made / "inner").mkdir(parents=True)
    (made / "a.txt").write_text("one")
    (made / "inner" / "b.txt").write_text("two")
    return made


def names_beside(target):
    return sorted(path.name for path in target.parent.iterdir())


def test_sha256_of_known_bytes(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")

    # FIPS 180-2, appendix B.1.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(tmp_path / "abc") == expected


@pytest.mark.slow
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_fingerprint_does_not_depend_on_key_order(values):
    turned = dict(reversed(values.items()))

    assert canonical_json(values) == canonical_json(turned)
    assert fingerprint(values) == fingerprint(turned)


def test_fingerprint_tells_values_apart():
    assert len({fingerprint(value) for value in (1, "1", [1], {"1": 1}, None, True)}) == 6


def test_hash_files_names_every_file_but_the_manifest(folder):
    write_manifest(folder, {})
    (folder / "inner" / "manifest.json").write_text("not the folder's own")

    assert list(hash_files(folder)) == ["a.txt", "inner/b.txt", "inner/manifest.json"]


def test_verify_files_accepts_what_was_hashed(folder):
    verify_files(folder, hash_files(folder))


def test_verify_files_names_a_changed_file(folder):
    hashes = hash_files(folder)
    (folder / "inner" / "b.txt").write_text("twO")

    with pytest.raises(AlteredFileError, match=r"inner/b\.txt: the file was changed"):
        verify_files(folder, hashes)


def test_verify_files_names_a_missing_file(folder):
    hashes = hash_files(folder)
    (folder / "a.txt").unlink()

    with pytest.raises(MissingFileError, match=r"a\.txt: the file is missing"):
        verify_files(folder, hashes)


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/hostname", "inner/../../outside.txt"])
def test_verify_files_refuses_a_name_that_leads_out(folder, name):
    (folder.parent / "outside.txt").write_text("x")

    with pytest.raises(FolderError, match="outside its folder"):
        verify_files(folder, {name: "0" * 64})


def test_verify_files_refuses_a_link_that_leads_out(folder):
    (folder.parent / "outside.txt").write_text("x")
    (folder / "link.txt").symlink_to(folder.parent / "outside.txt")

    with pytest.raises(FolderError, match="outside its folder"):
        verify_files(folder, hash_files(folder))


def test_atomic_folder_puts_the_new_folder_in_place(tmp_path):
    target = tmp_path / "deep" / "made"

    with atomic_folder(target) as folder:
        (folder / "a.txt").write_text("new")
        assert not target.exists()

    assert (target / "a.txt").read_text() == "new"
    assert names_beside(target) == ["made"]


def test_atomic_folder_replaces_the_old_one_as_a_whole(folder):
    with atomic_folder(folder) as fresh:
        (fresh / "c.txt").write_text("new")

    assert sorted(path.name for path in folder.iterdir()) == ["c.txt"]
    assert names_beside(folder) == ["made"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_atomic_folder_keeps_the_old_one_when_the_block_raises(folder, error):
    def fill_half():
        with atomic_folder(folder) as fresh:
            (fresh / "a.txt").write_text("half")
            raise error

    with pytest.raises(error):
        fill_half()

    assert (folder / "a.txt").read_text() == "one"
    assert (folder / "inner" / "b.txt").read_text() == "two"
    assert names_beside(folder) == ["made"]


def test_atomic_folder_keeps_the_old_one_when_the_swap_fails(folder, monkeypatch):
    real_rename = os.rename

    def rename(source, target):
        if str(target) == str(folder) and not str(source).endswith(".old"):
            raise OSError("disk trouble")
        real_rename(source, target)

    monkeypatch.setattr(os, "rename", rename)

    with pytest.raises(OSError, match="disk trouble"), atomic_folder(folder) as fresh:
        (fresh / "a.txt").write_text("new")

    assert (folder / "a.txt").read_text() == "one"
    assert names_beside(folder) == ["made"]


def test_atomic_folder_removes_what_a_killed_run_left(folder):
    left = folder.with_name(".made.partial-killed")
    left.mkdir()
    (left / "half.txt").write_text("x")

    with atomic_folder(folder):
        pass

    assert names_beside(folder) == ["made"]


def test_atomic_folder_brings_back_the_old_one_after_a_kill_inside_the_swap(folder):
    folder.rename(folder.with_name(".made.partial-killed.old"))
    folder.with_name(".made.partial-killed").mkdir()

    with pytest.raises(RuntimeError), atomic_folder(folder):
        raise RuntimeError

    assert (folder / "a.txt").read_text() == "one"
    assert names_beside(folder) == ["made"]


def test_atomic_folder_refuses_a_file_in_its_place(tmp_path):
    (tmp_path / "made").write_text("x")

    with pytest.raises(FolderError) as caught, atomic_folder(tmp_path / "made"):
        pass

    assert str(caught.value) == (
        f"{tmp_path / 'made'}: the output is a file, not a folder. Move it away or set another "
        "output_dir."
    )


@pytest.mark.parametrize("is_there", [False, True])
def test_atomic_folder_follows_a_link_and_leaves_it(tmp_path, is_there):
    far, link = tmp_path / "far" / "made", tmp_path / "link"
    (far if is_there else far.parent).mkdir(parents=True)
    link.symlink_to(far)

    for text in ("one", "two"):
        with atomic_folder(link) as fresh:
            (fresh / "a.txt").write_text(text)

    assert link.readlink() == far
    assert (far / "a.txt").read_text() == "two"
    assert names_beside(far) == ["made"]
    assert names_beside(link) == ["far", "link"]


def test_a_manifest_reads_as_it_was_written(tmp_path):
    manifest = {"labels": ["ärgerlich", "☃"], "share": 0.1, "none": None}

    write_manifest(tmp_path, manifest)

    assert read_manifest(tmp_path) == manifest
    assert names_beside(tmp_path / "manifest.json") == ["manifest.json"]


def test_read_manifest_says_what_is_wrong(tmp_path):
    with pytest.raises(MissingFileError, match=r"manifest\.json: the file is missing"):
        read_manifest(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(FolderError, match="not JSON"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("[1]")
    with pytest.raises(FolderError, match="not a JSON object"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(FolderError, match="not JSON"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(FolderError, match=r"not JSON.* Put the file back as it was, or have the"):
        read_manifest(tmp_path)
    with pytest.raises(MissingFileError, match=r"json: this is a file, not a folder\. Name the fo"):
        read_manifest(tmp_path / "manifest.json")
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(FolderError, match=r"json: the file cannot be read: Is a directory\. Put"):
        read_manifest(tmp_path)


def test_write_text_atomically_keeps_the_old_file_when_writing_fails(tmp_path):
    path = tmp_path / "a.txt"
    write_text_atomically(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(path, "new \ud800")

    assert path.read_text() == "old"
    assert names_beside(path) == ["a.txt"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_file_does_not_take_the_place_of_what_is_none(tmp_path, make):
    make(tmp_path / "there")
    before = (tmp_path / "there").stat().st_ino

    with pytest.raises(FolderError, match="there: this is no regular file"):
        write_text_atomically(tmp_path / "there", "x")

    assert (tmp_path / "there").stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
