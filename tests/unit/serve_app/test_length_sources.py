"""Where the lengths of the texts are from."""

import sys
from pathlib import Path

import pytest
from bundles import write_tiny_bundle
from shard_samples import shard_row, write_sample_shards

from pipeline.contract.errors import ConfigError, DataError, MissingFileError
from serve_app.length_sources import lengths_of_shards, lengths_of_training, read_lengths


def write(tmp_path, text):
    file = tmp_path / "lengths.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_a_file_gives_shares_of_each_length_and_cuts_long_texts(tmp_path):
    file = write(tmp_path, "4\n\n 8 \r\n4\n900\n")

    lengths = read_lengths(file, max_seq_len=16)

    assert lengths.tokens.tolist() == [4, 8, 16]
    assert lengths.shares.tolist() == [0.5, 0.25, 0.25]
    assert lengths.source == str(file)


@pytest.mark.parametrize(
    ("text", "line", "value"),
    [
        ("4\nfour\n", 2, "'four'"),
        ("4\n\n\n-3\n", 4, "'-3'"),
        ("0\n", 1, "'0'"),
        ("4.5\n", 1, "'4.5'"),
        ("4 5\n", 1, "'4 5'"),
        ("1_000\n", 1, "'1_000'"),
        ("٤\n", 1, "'٤'"),
        ("²\n", 1, "'²'"),
        ("9999999999\n", 1, "'9999999999'"),
        ("9" * 5000, 1, "'999"),
        (b"4\n\xff\xfe\n", 2, "'\ufffd\ufffd'"),
    ],
)
def test_a_line_that_is_no_number_of_tokens_is_named(tmp_path, text, line, value):
    file = write(tmp_path, text)

    with pytest.raises(DataError) as caught:
        read_lengths(file, max_seq_len=16)

    assert f"{file}:{line}: " in str(caught.value)
    assert f"(got {value}" in str(caught.value)
    assert "Write one whole number of tokens" in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_lengths_is_refused(tmp_path, text):
    with pytest.raises(DataError, match=r"lengths\.txt: the file has no lengths"):
        read_lengths(write(tmp_path, text), max_seq_len=16)


@pytest.mark.parametrize(("name", "message"), [("none.txt", "No such file"), (".", "directory")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, message):
    with pytest.raises(ConfigError, match=f"--lengths .*the lengths cannot be read: .*{message}"):
        read_lengths(tmp_path / name, max_seq_len=16)


def test_a_file_without_end_is_refused():
    with pytest.raises(ConfigError, match=r"--lengths /dev/zero: has over [\d,]+ characters"):
        read_lengths(Path("/dev/zero"), max_seq_len=16)


def test_training_lengths_are_the_percentiles_of_the_manifest(tmp_path):
    manifest = write_tiny_bundle(tmp_path / "bundle", max_seq_len=16).manifest

    lengths = lengths_of_training(manifest)

    assert lengths.tokens[0] == manifest.seq_len_percentiles[0]
    assert lengths.tokens[-1] == manifest.seq_len_percentiles[-1]
    assert lengths.shares.sum() == pytest.approx(1.0)
    assert lengths.source == "the training texts"


def test_shards_give_the_lengths_of_their_test_rows(tmp_path):
    row = shard_row(0, 9, [0])
    test_rows = [shard_row(1, 3, [0]), shard_row(2, 5, [0]), shard_row(3, 5, [0])]
    folder = write_sample_shards(
        tmp_path / "shards",
        {"train": [[row]], "validation": [[row]], "test": [test_rows]},
        labels=["a", "b"],
    )

    lengths = lengths_of_shards(folder, max_seq_len=16)

    assert lengths.tokens.tolist() == [3, 5]
    assert lengths.shares.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_a_folder_without_shards_or_without_test_rows_is_refused(tmp_path):
    row = shard_row(0, 9, [0])
    folder = write_sample_shards(
        tmp_path / "shards",
        {"train": [[row]], "validation": [[row]], "test": []},
        labels=["a", "b"],
    )

    with pytest.raises(DataError, match="no test rows"):
        lengths_of_shards(folder, max_seq_len=16)
    with pytest.raises(MissingFileError, match="none"):
        lengths_of_shards(tmp_path / "none", max_seq_len=16)


def test_without_pyarrow_shards_are_refused_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pipeline.contract.shards", None)

    with pytest.raises(ConfigError, match=r"--shards .*Install textlane\[train\]"):
        lengths_of_shards(tmp_path, max_seq_len=16)
