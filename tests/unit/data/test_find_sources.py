import pytest

from pipeline.config import DataSettings
from pipeline.contract.errors import DataError
from pipeline.data.sources import find_sources


def names(*files, **settings):
    return [source.name for source in find_sources(DataSettings(files=files, **settings))]


@pytest.fixture
def folder(tmp_path):
    for name in ("b.csv", "a.jsonl", "deep/c.CSV", ".hidden.csv", "notes.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text,label\n")
    return tmp_path / "in"


def test_folder_gives_its_known_files_in_order_and_no_hidden_ones(folder):
    assert names(f"{folder}/") == [f"{folder}/{n}" for n in ("a.jsonl", "b.csv", "deep/c.CSV")]
    assert names(str(folder), format="csv") == [f"{folder}/b.csv", f"{folder}/deep/c.CSV"]


def test_glob_and_file_that_overlap_give_each_file_once(folder):
    assert names(f"{folder}/b.csv", f"{folder}/*.csv") == [f"{folder}/b.csv"]


def test_set_format_overrides_the_ending(folder):
    source = find_sources(DataSettings(files=(f"{folder}/notes.txt",), format="tsv"))[0]

    assert source.format == "tsv"
    assert len(source.sha256) == 64


@pytest.mark.parametrize("location", ["none.csv", "none-*.csv", "s3://bucket/rows.csv"])
def test_location_without_files_is_named(location):
    with pytest.raises(DataError, match="no input file was found") as caught:
        names(location)

    assert caught.value.place == location


def test_unknown_ending_asks_for_the_format(folder):
    with pytest.raises(DataError, match=r"the ending '\.txt'.*Set data\.format"):
        names(f"{folder}/notes.txt")


def test_utf16_file_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("text,label\na,1\n", encoding="utf-16")

    with pytest.raises(DataError, match=r"the file is UTF-16.*iconv"):
        names(str(path))
