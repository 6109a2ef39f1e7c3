import numpy as np
import pyarrow as pa
import pytest

from pipeline.contract.errors import (
    AlteredFileError,
    FolderError,
    MissingFileError,
    SchemaVersionError,
)
from pipeline.contract.folder import hash_files, read_manifest, sha256_file, write_manifest
from pipeline.contract.shards import (
    SHARD_SCHEMA,
    SPLITS,
    ShardSplit,
    load_shards,
    write_shard,
)

ROWS = [
    (7, "one", [101, 5, 102], [1]),
    (3, "zwei ☃", [101, 6, 6, 6, 102], [0]),
    (9, "", [101, 102], [1]),
    (1, "four", [101, 8, 9, 102], [0]),
]


def table_of(rows):
    row_ids, texts, ids, labels = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table(
        [
            pa.array(row_ids, pa.int64()),
            pa.array(range(len(rows)), pa.int32()),
            pa.array(texts, pa.string()),
            pa.array([""] * len(rows), pa.string()),
            pa.array(ids, pa.list_(pa.int32())),
            pa.array(labels, pa.list_(pa.int32())),
        ],
        schema=SHARD_SCHEMA,
    )


@pytest.fixture
def folder(tmp_path):
    write_shard(tmp_path / "train" / "bucket_00_shard_00000.arrow", table_of(ROWS))
    files = sorted(hash_files(tmp_path))
    empty = {"files": [], "rows": 0}
    manifest = {
        "schema_version": 2,
        "fingerprint": "abc",
        "task": "sequence_classification",
        "labels": ["no", "yes"],
        "text_settings": {"max_seq_len": 8, "strip_html": True},
        "bucket_edges": [3, 5],
        "splits": {**dict.fromkeys(SPLITS, empty), "train": {"files": files, "rows": 4}},
        "files": hash_files(tmp_path),
    }
    write_manifest(tmp_path, manifest)
    return tmp_path


def rewrite_manifest(folder, **changes):
    write_manifest(folder, {**read_manifest(folder), **changes})


def test_a_split_gives_back_what_was_written(folder):
    split = load_shards(folder).split("train")

    assert len(split) == 4
    assert split.row_ids.tolist() == [7, 3, 9, 1]
    assert split.lengths.tolist() == [3, 5, 2, 4]
    assert [split.input_ids(index).tolist() for index in range(4)] == [row[2] for row in ROWS]
    assert [split.labels(index).tolist() for index in range(4)] == [row[3] for row in ROWS]
    assert [split.text(index) for index in range(4)] == [row[1] for row in ROWS]
    assert split.windows.tolist() == [0, 1, 2, 3]
    assert split.lengths.dtype == split.row_ids.dtype == np.int64
    assert split.input_ids(0).dtype == split.labels(0).dtype == np.int32


def test_shards_are_of_single_texts_unless_the_manifest_says_pairs(folder):
    assert not load_shards(folder).takes_pairs

    rewrite_manifest(folder, takes_pairs=True)

    assert load_shards(folder).takes_pairs
    assert load_shards(folder).split("train").text_pair(0) == ""


def test_rows_run_on_over_several_files_and_over_empty_ones(tmp_path):
    paths = [tmp_path / f"{part}.arrow" for part in range(4)]
    for path, rows in zip(paths, [ROWS[:1], [], ROWS[1:3], ROWS[3:]], strict=True):
        write_shard(path, table_of(rows))

    split = ShardSplit(paths)

    assert [split.input_ids(index).tolist() for index in range(4)] == [row[2] for row in ROWS]
    assert split.row_ids.tolist() == [7, 3, 9, 1]
    assert split.text(3) == "four"


def test_labels_of_tokens_may_be_as_long_as_the_ids_or_empty(tmp_path):
    write_shard(tmp_path / "a.arrow", table_of([(0, "x", [1, 2], [-100, 4]), (1, "y", [3], [])]))

    split = ShardSplit([tmp_path / "a.arrow"])

    assert [split.labels(index).tolist() for index in range(2)] == [[-100, 4], []]


def test_a_slice_of_a_larger_table_is_written_as_such(tmp_path):
    write_shard(tmp_path / "a.arrow", table_of(ROWS).slice(1, 2))

    split = ShardSplit([tmp_path / "a.arrow"])

    assert split.lengths.tolist() == [5, 2]
    assert split.input_ids(0).tolist() == ROWS[1][2]


def test_equal_rows_give_equal_bytes(tmp_path):
    whole = table_of(ROWS)
    parts = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    write_shard(tmp_path / "a.arrow", whole)
    write_shard(tmp_path / "b.arrow", parts)

    assert sha256_file(tmp_path / "a.arrow") == sha256_file(tmp_path / "b.arrow")


def test_an_empty_split_has_no_rows(folder):
    split = load_shards(folder).split("test")

    assert len(split) == 0
    assert split.lengths.tolist() == split.row_ids.tolist() == []


@pytest.mark.parametrize("index", [-1, 4])
def test_a_row_outside_the_split_is_an_index_error(folder, index):
    with pytest.raises(IndexError, match=f"row {index} of 4"):
        load_shards(folder).split("train").input_ids(index)


def test_the_manifests_fields_are_typed(folder):
    shards = load_shards(folder)

    assert (shards.fingerprint, shards.labels, shards.task) == (
        "abc",
        ["no", "yes"],
        "sequence_classification",
    )
    assert shards.text_settings.max_seq_len == 8
    assert shards.bucket_edges.tolist() == [3, 5]


def test_a_changed_byte_is_refused_by_name_unless_verify_is_off(folder):
    path = folder / "train" / "bucket_00_shard_00000.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    with pytest.raises(AlteredFileError, match=r"bucket_00_shard_00000\.arrow"):
        load_shards(folder)
    assert load_shards(folder, verify=False).fingerprint == "abc"


def test_a_missing_file_a_missing_manifest_and_a_missing_field_are_refused(folder):
    rewrite_manifest(folder, files={"train/gone.arrow": "0" * 64})
    with pytest.raises(MissingFileError, match=r"train/gone\.arrow"):
        load_shards(folder)
    manifest = read_manifest(folder)
    del manifest["labels"], manifest["task"]
    write_manifest(folder, manifest)
    with pytest.raises(FolderError, match="the manifest lacks task, labels"):
        load_shards(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(MissingFileError, match=r"manifest\.json"):
        load_shards(folder)


@pytest.mark.parametrize("version", [3, 1, None, "1"])
def test_another_schema_is_refused_with_both_numbers(folder, version):
    rewrite_manifest(folder, schema_version=version)

    with pytest.raises(SchemaVersionError, match=r"reads shards of schema 2 \(got .*prepare"):
        load_shards(folder)
