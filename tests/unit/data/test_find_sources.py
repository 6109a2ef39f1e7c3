import gzip
import pickle
from pathlib import Path

import fsspec
import pytest
from file_fakes import LockedFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.config import DataSettings
from pipeline.contract.errors import ConfigError, DataError
from pipeline.data.sources import find_sources

HEADER = "text,label\n"


def find(*files, **settings):
    return find_sources(DataSettings(files=files, **settings))


def names(*files, **settings):
    return [source.name for source in find(*files, **settings)]


@pytest.fixture
def folder(tmp_path):
    for name in ("b.csv", "a.jsonl", "deep/c.CSV", "deep/d.tsv.gz", ".hidden.csv", "notes.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = HEADER.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return tmp_path / "in"


@pytest.fixture
def memory():
    system = MemoryFileSystem()
    for name in ("b.csv", "deep/a.jsonl", ".hidden/x.csv", "notes.txt"):
        system.pipe(f"/tl_find/{name}", HEADER.encode())
    yield "memory://tl_find"
    system.rm("/tl_find", recursive=True)


def test_folder_gives_its_known_files_in_order_and_no_hidden_ones(folder):
    found = ["a.jsonl", "b.csv", "deep/c.CSV", "deep/d.tsv.gz"]

    assert names(f"{folder}/") == [f"{folder}/{name}" for name in found]
    assert names(str(folder), format="csv") == [f"{folder}/b.csv", f"{folder}/deep/c.CSV"]


def test_glob_names_its_files_as_the_job_does(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)

    assert names("in/*.csv") == ["in/b.csv"]
    assert names("in/**/*.[cC]*") == ["in/b.csv", "in/deep/c.CSV"]
    assert names("in/.h*") == ["in/.hidden.csv"]
    assert names(f"file://{folder}/*.csv") == [f"file://{folder}/b.csv"]


def test_filesystem_uris_give_files_folders_and_globs(memory):
    assert names(f"{memory}/b.csv") == [f"{memory}/b.csv"]
    assert names(memory) == [f"{memory}/b.csv", f"{memory}/deep/a.jsonl"]
    assert names(f"{memory}/*/*.jsonl") == [f"{memory}/deep/a.jsonl"]


def test_source_opens_itself_after_a_journey(folder, monkeypatch):
    monkeypatch.chdir(folder)
    sources = find("deep/d.tsv.gz", "b.csv")

    copies = pickle.loads(pickle.dumps(sources))

    monkeypatch.chdir("/")
    assert copies == sources
    for copy in copies:
        with copy.open_text(newline="") as file:
            assert file.read() == HEADER
    assert [copy.format for copy in copies] == ["tsv", "csv"]


def test_lists_stand_in_order_and_give_their_splits(folder):
    train, validation, test = f"{folder}/b.csv", f"{folder}/a.jsonl", f"{folder}/deep/c.CSV"

    both = find(train, validation_files=(validation,), test_files=(test,))
    only_test = find(train, test_files=(test,))

    assert [(s.name, s.given_split) for s in both] == [
        (train, "train"),
        (validation, "validation"),
        (test, "test"),
    ]
    assert [s.given_split for s in only_test] == [None, "test"]


def test_what_the_job_itself_wrote_is_left_out_with_a_word(folder):
    shards = folder / "out" / "shards"
    shards.mkdir(parents=True)
    for name in ("rejected.jsonl", "other.jsonl"):
        (shards / name).write_text("{}\n")
    (folder / "out" / "mine.csv").write_text(HEADER)
    link, said = folder / "link", []
    link.symlink_to(folder)
    own = (link / "out" / "shards", folder / "out" / "bad.jsonl")
    read = DataSettings(files=(str(folder),))
    globbed = DataSettings(files=(f"{folder}/**/*.jsonl",))

    found, by_glob = (find_sources(data, own=own, say=said.append) for data in (read, globbed))

    below = [source.name.removeprefix(f"{folder}/") for source in found]
    assert below == ["a.jsonl", "b.csv", "deep/c.CSV", "deep/d.tsv.gz", "out/mine.csv"]
    assert [source.name for source in by_glob] == [f"{folder}/a.jsonl"]
    assert said == [
        f"left out of {place}: 2 files that the job itself wrote into output_dir"
        for place in (folder, f"{folder}/**/*.jsonl")
    ]


def test_a_file_of_the_job_that_is_named_itself_is_read(folder):
    file = f"{folder}/a.jsonl"

    found = find_sources(DataSettings(files=(file,)), own=(folder,))

    assert [source.name for source in found] == [file]


def test_folder_with_nothing_but_what_the_job_wrote_is_refused(folder):
    with pytest.raises(
        DataError, match=r"no input file but those that the job itself wrote\. Name"
    ):
        find_sources(DataSettings(files=(str(folder),)), own=(folder,))


def test_file_named_twice_is_refused_with_both_names(folder):
    file = f"{folder}/b.csv"

    with pytest.raises(DataError) as caught:
        names(file, f"{folder}/*.csv")

    assert str(caught.value) == (
        f"{file}: the file is named twice: {file} by data.files ({file}) and {file} by "
        f"data.files ({folder}/*.csv). Take one of them out."
    )


def test_file_in_two_lists_is_refused_even_through_a_link(folder):
    link = folder / "link.csv"
    link.symlink_to("b.csv")

    with pytest.raises(DataError, match=r"b\.csv by data\.files .*link\.csv by data\.test_files"):
        names(f"{folder}/b.csv", test_files=(str(link),))


def test_file_in_memory_named_twice_is_refused(memory):
    with pytest.raises(DataError, match="the file is named twice"):
        names(f"{memory}/b.csv", f"{memory}/*.csv")


def test_set_format_overrides_the_ending(folder):
    source = find(f"{folder}/notes.txt", format="tsv")[0]

    assert source.format == "tsv"
    assert len(source.sha256) == 64


@pytest.mark.parametrize(
    "location", ["none.csv", "none-*.csv", "memory://none/rows.csv", "memory://none/*.csv"]
)
def test_location_without_files_is_named(location):
    at = "" if "://" in location else f" at {Path.cwd() / location}"

    with pytest.raises(DataError) as caught:
        names(location)

    assert str(caught.value) == (
        f"{location}: no input file was found{at}. Name in data.files a file, a glob, or a folder "
        "with files that end in .csv, .tsv, .jsonl, .ndjson, .parquet, .conll, .bio, .iob "
        "(also .gz, .bz2, .xz)."
    )


def test_folder_without_a_known_file_says_which_setting_names_it(folder):
    (folder / "empty").mkdir()

    with pytest.raises(DataError, match=r"/empty: no input file was found\. Name in data\.test_fi"):
        names(f"{folder}/b.csv", test_files=(f"{folder}/empty",))


def test_protocol_without_its_package_names_the_package():
    with pytest.raises(ConfigError) as caught:
        names("s3://bucket/rows.csv")

    assert str(caught.value) == (
        "s3:// needs a package that is not installed (got 's3://bucket/rows.csv'). "
        "Run `pip install s3fs`."
    )


def test_unknown_protocol_is_refused():
    with pytest.raises(ConfigError, match="cannot be used: Protocol not known: nowhere"):
        names("nowhere://bucket/rows.csv")


def test_file_that_may_not_be_read_says_so():
    fsspec.register_implementation("locked", LockedFileSystem, clobber=True)

    with pytest.raises(DataError) as caught:
        names("locked://rows.csv")

    assert str(caught.value) == (
        "locked://rows.csv: it cannot be read: Permission denied. "
        "Check that it is there and may be read."
    )


def test_file_system_that_refuses_to_list_is_not_called_empty():
    fsspec.register_implementation("locked", LockedFileSystem, clobber=True)

    with pytest.raises(DataError, match=r"locked://closed: it cannot be read: no credentials"):
        names("locked://closed")


def test_over_long_file_name_is_not_found(tmp_path):
    with pytest.raises(DataError, match="no input file was found"):
        names(f"{tmp_path}/{'x' * 300}.csv")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes.txt", r"the ending '\.txt' does not tell the format\. Set data\.format to csv"),
        ("rows.csv.zst", r"the ending '\.zst' does not tell the format"),
        ("rows.parquet.gz", r"Parquet inside gzip cannot be read in parts\. Decompress it"),
    ],
)
def test_ending_that_does_not_help_is_refused(tmp_path, name, message):
    (tmp_path / name).write_text(HEADER)

    with pytest.raises(DataError, match=message):
        names(f"{tmp_path}/{name}")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_wide_file_is_refused_with_the_cure(tmp_path, encoding):
    path = tmp_path / "wide.csv"
    path.write_text(("\ufeff" if encoding.endswith("be") else "") + HEADER, encoding=encoding)
    name = encoding.upper()[:6]

    with pytest.raises(DataError) as caught:
        names(str(path))

    assert str(caught.value) == (
        f"{path}: the file is {name}. Convert it: iconv -f {name} -t UTF-8 wide.csv."
    )


def test_mark_of_utf8_contradicts_another_encoding(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEADER, encoding="utf-8-sig")

    with pytest.raises(DataError, match=r"UTF-8's byte order mark, data\.encoding is cp1252\. Set"):
        names(str(path), encoding="cp1252")


def test_file_that_is_not_gzip_is_refused(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_text(HEADER)

    with pytest.raises(DataError) as caught:
        names(str(path))

    assert str(caught.value) == (
        f"{path}: the compressed file is broken: Not a gzipped file (b'te'). "
        "Compress or fetch it again; `gzip -t`, `bzip2 -t` or `xz -t` tests it."
    )
