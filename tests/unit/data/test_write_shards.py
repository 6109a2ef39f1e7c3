import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_samples import spool_of

from pipeline.contract.folder import hash_files
from pipeline.contract.shards import ShardSplit
from pipeline.data import shard_files
from pipeline.data.shard_files import write_shards
from pipeline.data.spool import SpoolWriter
from pipeline.data.tokenise import TOKEN_SCHEMA

EDGES = np.array([4, 40, 40_000])
MIN_BYTES = 1 << 16


def write(folder, lengths, *, splits=None, windows=None, rows_per_block=50, chars=10, **limits):
    """Write rows of these token lengths; row i's ids are all i, its label is i % 3."""
    folder.mkdir()
    rows = [(f"{i} ".ljust(chars, "x"), ["a"]) for i in range(len(lengths))]
    texts = spool_of(folder / "texts", rows, rows_per_block=rows_per_block)
    table = pa.table(
        {
            "row": np.arange(len(lengths)) - (windows or 0),
            "window": windows or [0] * len(lengths),
            "split": splits or [0] * len(lengths),
            "fit": [0] * len(lengths),
            "input_ids": [[i] * length for i, length in enumerate(lengths)],
            "labels": [[i % 3] for i in range(len(lengths))],
        },
        schema=TOKEN_SCHEMA,
    )
    with SpoolWriter(folder / "tokens", TOKEN_SCHEMA) as writer:
        for begin in range(0, len(lengths), rows_per_block):
            writer.append(table.slice(begin, rows_per_block))
        tokens = writer.close()
    (folder / "shards").mkdir()
    return write_shards(
        folder / "shards",
        tokens,
        texts,
        edges=EDGES,
        num_labels=3,
        **{"max_shard_bytes": 1 << 26, **limits},
    )


def split_at(folder, written, name="train"):
    return ShardSplit([folder / "shards" / file for file in written.files[name]])


def test_each_split_has_its_rows_by_bucket_and_then_in_order(tmp_path):
    lengths = [3, 30, 2, 5, 300, 4]

    written = write(tmp_path / "a", lengths, splits=[0, 0, 0, 2, 0, 0])

    train, test = (split_at(tmp_path / "a", written, name) for name in ("train", "test"))
    assert train.row_ids.tolist() == [0, 2, 5, 1, 4]
    assert test.row_ids.tolist() == [3]
    assert written.files["validation"] == []
    assert written.files["train"][1] == "train/bucket_01_shard_00000.arrow"
    assert written.label_counts["train"].tolist() == [1, 2, 2]
    for index, row in enumerate(train.row_ids.tolist()):
        assert train.input_ids(index).tolist() == [row] * lengths[row]
        assert train.text(index) == f"{row} ".ljust(10, "x")


@pytest.mark.parametrize("rows_per_block", [1, 3, 50])
def test_text_of_windows_stands_in_the_first(tmp_path, rows_per_block):
    windows = [0, 0, 1, 2, 0, 1]

    written = write(tmp_path / "a", [3] * 6, windows=windows, rows_per_block=rows_per_block)

    train = split_at(tmp_path / "a", written)
    assert train.row_ids.tolist() == [0, 1, 1, 1, 4, 4]
    assert train.windows.tolist() == windows
    assert [train.text(row)[:1].strip() for row in range(6)] == ["0", "1", "", "", "4", ""]


@pytest.mark.slow
@pytest.mark.parametrize("batch_rows", [7, 2048])
def test_bytes_do_not_depend_on_the_blocks_that_rows_come_in(tmp_path, monkeypatch, batch_rows):
    monkeypatch.setattr(shard_files, "_BATCH_ROWS", batch_rows)
    lengths = np.random.default_rng(0).integers(1, 60, 400).tolist()
    splits = [index % 3 for index in range(400)]

    for rows_per_block in (400, 64, 1):
        folder = tmp_path / str(rows_per_block)
        write(folder, lengths, splits=splits, rows_per_block=rows_per_block)

    hashes = [hash_files(path / "shards") for path in tmp_path.iterdir()]
    assert hashes[0] == hashes[1] == hashes[2]


@pytest.mark.slow
def test_no_file_passes_the_limit(tmp_path):
    lengths = np.random.default_rng(1).integers(1, 60, 3000).tolist()

    written = write(tmp_path / "a", lengths, max_shard_bytes=MIN_BYTES, chars=200)

    sizes = [(tmp_path / "a" / "shards" / file).stat().st_size for file in written.files["train"]]
    assert len(sizes) > 12
    assert max(sizes) <= MIN_BYTES
    assert np.median(sizes) > MIN_BYTES / 2
    assert sorted(split_at(tmp_path / "a", written).row_ids) == list(range(3000))


def test_a_single_larger_row_gets_a_file_of_its_own(tmp_path):
    lengths = [300] * 5 + [30_000] + [300] * 5

    written = write(tmp_path / "a", lengths, max_shard_bytes=MIN_BYTES)

    shards = [
        ShardSplit([tmp_path / "a" / "shards" / file]).row_ids.tolist()
        for file in written.files["train"]
    ]
    assert shards == [[0, 1, 2, 3, 4], [5], [6, 7, 8, 9, 10]]


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 9000), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_no_row_is_lost_or_doubled_and_files_are_small(tmp_path_factory, lengths, rows_per_block):
    folder = tmp_path_factory.mktemp("law") / "a"

    written = write(folder, lengths, rows_per_block=rows_per_block, max_shard_bytes=MIN_BYTES)

    split = split_at(folder, written)
    assert sorted(split.row_ids) == list(range(len(lengths)))
    assert sorted(split.lengths) == sorted(lengths)
    for file in written.files["train"]:
        path = folder / "shards" / file
        assert path.stat().st_size <= MIN_BYTES or len(ShardSplit([path])) == 1
