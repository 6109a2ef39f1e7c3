import io
import json
import os
from dataclasses import replace

import pyarrow as pa
import pytest
from shard_samples import shard_row, three_splits, write_sample_shards

from pipeline.contract.errors import AlteredFileError, FolderError
from pipeline.contract.folder import hash_files, read_manifest, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, write_shard
from pipeline.data.inspection import inspect_shards
from pipeline.data.inspection_text import as_json, as_tables, printable
from pipeline.data.lengths import LengthFigures, length_figures, length_histogram

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \x9b31m a\nb\u202eevil \x7f [red]x[/red]"
UNSAFE = set("\x1b\x07\x9b\u202e\x7f")


@pytest.fixture
def folder(tmp_path):
    splits = {
        "train": [
            [shard_row(5, 3, [1], "short"), shard_row(0, 4, [0], "four")],
            [shard_row(3, 9, [1]), shard_row(7, 9, [1], window=1), shard_row(7, 6, [1], "begin")],
        ],
        "validation": [[shard_row(2, 5, [0])]],
        "test": [[shard_row(4, 2, [1]), shard_row(1, 12, [0], "long", text_pair="and its pair")]],
    }
    return write_sample_shards(tmp_path / "shards", splits, labels=["no", "yes"])


def test_every_figure_of_small_shards_is_exact(folder):
    inspection = inspect_shards(folder)

    train = inspection.splits["train"]
    assert (train.rows, train.tokens, train.labelled, train.unlabelled_rows) == (5, 31, 5, 0)
    assert (train.windowed_texts, train.windows) == (1, 2)
    assert train.label_counts == {"no": 1, "yes": 4}
    assert train.lengths == LengthFigures(min=3, p1=3, p10=3, p50=6, p90=9, p99=9, max=9, mean=6.2)
    assert inspection.splits["test"].label_counts == {"no": 1, "yes": 1}
    assert inspection.length_histogram == {"tokens": [3, 4, 6, 9], "rows": [1, 1, 1, 2]}
    assert (inspection.rows.read, inspection.rows.truncated) == (12, 1)
    assert [bucket.edge for bucket in inspection.buckets] == [4, 9]
    assert inspection.padding.buckets_window == 0.02
    assert inspection.picture is None


def test_the_longest_and_shortest_rows_come_in_one_order(folder):
    inspection = inspect_shards(folder)

    def places(rows):
        return [(row.split, row.row_id, row.window, row.tokens) for row in rows]

    assert places(inspection.longest) == [
        ("test", 1, 0, 12),
        ("train", 3, 0, 9),
        ("train", 7, 1, 9),
        ("train", 7, 0, 6),
        ("validation", 2, 0, 5),
        ("train", 0, 0, 4),
        ("train", 5, 0, 3),
        ("test", 4, 0, 2),
    ]
    assert places(inspection.shortest)[:3] == [
        ("test", 4, 0, 2),
        ("train", 5, 0, 3),
        ("train", 0, 0, 4),
    ]
    longest = inspection.longest[0]
    assert (longest.labels, longest.text, longest.text_pair) == (["no"], "long", "and its pair")


def test_of_many_equal_rows_the_first_ten_by_row_id_are_shown(tmp_path):
    rows = [shard_row(row_id, 7, [0]) for row_id in reversed(range(40))]
    splits = {"train": [rows[:25], rows[25:]], "validation": [[rows[0]]], "test": [[rows[1]]]}

    inspection = inspect_shards(write_sample_shards(tmp_path, splits, labels=["only"]))

    assert [row.row_id for row in inspection.longest] == list(range(10))
    assert inspection.longest == inspection.shortest


@pytest.mark.slow
def test_labels_of_words_are_counted_once_for_each_word(tmp_path):
    row = shard_row(0, 6, [-100, 1, -100, 0, 0, -100])
    splits = three_splits(row)

    folder = write_sample_shards(tmp_path, splits, labels=["O", "B"], task="token_classification")
    inspection = inspect_shards(folder)

    train = inspection.splits["train"]
    assert (train.label_counts, train.labelled) == ({"O": 2, "B": 1}, 3)
    assert inspection.longest[0].labels == ["B", "O", "O"]
    assert "their share of the words" in as_tables(inspection, width=None)


def test_rows_with_several_labels_and_with_none_are_told_apart(tmp_path):
    splits = three_splits(shard_row(0, 6, [0, 2]))
    splits["train"][0] += [shard_row(8, 2, []), shard_row(9, 3, [2])]

    folder = write_sample_shards(
        tmp_path, splits, labels=["a", "b", "c"], task="multi_label_classification"
    )
    inspection = inspect_shards(folder)
    lines = [line.split() for line in as_tables(inspection, width=None).splitlines()]

    train = inspection.splits["train"]
    assert train.label_counts == {"a": 1, "b": 0, "c": 2}
    assert (train.labelled, train.unlabelled_rows) == (3, 1)
    assert ["c", "2", "66.7%", "0", "0.0%", "0", "0.0%"] in lines
    assert ["(no", "label)", "1", "33.3%", "1", "100.0%", "1", "100.0%"] in lines


def test_the_plain_tables_hold_every_figure(folder):
    text = as_tables(inspect_shards(folder), width=None)

    lines = [line.split() for line in text.splitlines()]
    assert ["rejected", "3", "25.0%"] in lines
    assert ["duplicate", "2", "16.7%"] in lines
    assert ["truncated", "1", "8.3%"] in lines
    assert ["train", "5", "31", "1", "2"] in lines
    assert ["train", "3", "3", "3", "6", "9", "9", "9", "6.2"] in lines
    assert ["yes", "4", "80.0%", "0", "0.0%", "1", "50.0%"] in lines
    assert ["5–9", "3", "24", "11.1%", "4.0%"] in lines
    assert ["40.0%", "10.0%", "2.0%"] in lines
    assert ["train", "7.1", "9", "yes", "some", "text"] in lines
    assert ["test", "1", "12", "no", "long", "‖", "and", "its", "pair"] in lines
    assert "\x1b" not in text
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_for_a_terminal_fit_its_width(folder, width):
    text = as_tables(inspect_shards(folder), width=width)

    tables = text.split("\n", 1)[1].partition("picture:")[0]
    plain = io.StringIO()
    for part in tables.split("\x1b["):
        plain.write(part.partition("m")[2] if part[:1].isdigit() else part)
    assert max(len(line) for line in plain.getvalue().splitlines()) <= width


def test_of_many_labels_the_most_and_the_least_frequent_are_shown(tmp_path):
    labels = [f"label{number:03d}" for number in range(100)]
    rows = [shard_row(0, 3, [number] * (number + 1)) for number in range(100)]
    splits = {"train": [rows], "validation": [rows[:1]], "test": [rows[:1]]}

    text = as_tables(
        inspect_shards(write_sample_shards(tmp_path, splits, labels=labels)), width=None
    )

    shown = [label for label in labels if f"\n{label}" in text]
    assert shown == labels[:20] + labels[80:]
    assert "… 60 more" in text
    assert text.index("label099") < text.index("label080") < text.index("label019")


def test_no_text_and_no_name_reaches_the_terminal_as_a_command(tmp_path):
    row = shard_row(0, 6, [0], HOSTILE, text_pair=HOSTILE)
    folder = write_sample_shards(
        tmp_path,
        three_splits(row),
        labels=[HOSTILE],
        rows={
            **{"read": 3, "kept": 3, "rejected": 0, "not_sampled": 0},
            "rejected_by_reason": {HOSTILE: 0},
            "by_file": {
                name: {"read": 0, "kept": 0, "rejected": 0, "not_sampled": 0}
                for name in (HOSTILE, "[bold]b.csv")
            },
        },
    )
    inspection = inspect_shards(folder)

    text, in_json = as_tables(inspection, width=None), as_json(inspection)

    assert not UNSAFE & set(text)
    assert not UNSAFE & set(in_json)
    assert r"\x1b[2J\x1b]0;owned\x07" in text
    assert "[bold]b.csv" in text
    assert json.loads(in_json)["longest"][0]["text"] == HOSTILE


def test_printable_keeps_what_can_be_seen():
    text = printable("größe 漢字 🙂 [b]\t\ud800\u200b")

    assert text == "größe 漢字 🙂 [b]\\t\\ud800\\u200b"


def test_json_holds_what_the_tables_hold(folder):
    values = json.loads(as_json(inspect_shards(folder)))

    assert values["splits"]["train"]["lengths"]["p50"] == 6
    assert values["rows"]["rejected_by_reason"] == {"duplicate": 2, "empty_text": 1}
    assert values["buckets"][1]["padding_to_edge"] == 0.111111
    assert values["longest"][0] == {
        "split": "test",
        "row_id": 1,
        "window": 0,
        "tokens": 12,
        "labels": ["no"],
        "text": "long",
        "text_pair": "and its pair",
    }


def test_long_texts_are_shortened(tmp_path):
    folder = write_sample_shards(
        tmp_path, three_splits(shard_row(0, 6, [0], "x" * 100_000)), labels=["a"]
    )

    text = inspect_shards(folder).longest[0].text

    assert text == "x" * 199 + "…"


def test_the_folders_own_picture_is_named(folder):
    (folder / "lengths.svg").write_text("<svg/>")
    write_manifest(folder, {**read_manifest(folder), "files": hash_files(folder)})

    assert inspect_shards(folder).picture == str(folder / "lengths.svg")


def test_an_empty_split_is_refused_by_name(folder):
    manifest = read_manifest(folder)
    manifest["splits"]["test"]["files"] = []
    write_manifest(folder, manifest)

    with pytest.raises(FolderError, match="the test split has no rows"):
        inspect_shards(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("buckets", None, "the manifest's buckets cannot be used"),
        ("rows", {"read": "many"}, r"the manifest's rows\.read cannot be used"),
        ("splits", {"train": {"files": []}}, r"the manifest's splits\.validation cannot be used"),
    ],
)
def test_a_manifest_with_a_wrong_field_is_refused_by_its_name(folder, field, value, message):
    write_manifest(folder, {**read_manifest(folder), field: value})

    with pytest.raises(FolderError, match=message):
        inspect_shards(folder)


def test_a_label_that_the_manifest_does_not_name_is_refused(folder):
    write_manifest(folder, {**read_manifest(folder), "labels": ["no"]})

    with pytest.raises(FolderError, match=r"not one of the 1 of the manifest \(got 1\)"):
        inspect_shards(folder)


def test_what_is_no_arrow_file_is_refused_even_unverified(folder):
    (folder / "train/bucket_00_shard_00000.arrow").write_bytes(os.urandom(300))

    with pytest.raises(AlteredFileError, match="a file of the train split is no shard"):
        inspect_shards(folder, verify=False)


def test_an_arrow_file_of_other_columns_is_refused(folder):
    table = pa.table({"text": ["a"]})
    path = folder / "train/bucket_00_shard_00000.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)

    with pytest.raises(AlteredFileError, match="a file of the train split is no shard"):
        inspect_shards(folder, verify=False)


def test_a_text_that_is_no_utf8_is_refused_unverified(folder):
    path = folder / "train/bucket_00_shard_00000.arrow"
    write_shard(path, pa.Table.from_pylist([shard_row(0, 30, [0], "zebra")], schema=SHARD_SCHEMA))
    path.write_bytes(path.read_bytes().replace(b"zebra", b"ze\xff\xfea"))

    with pytest.raises(AlteredFileError, match="a text of the train split is not UTF-8"):
        inspect_shards(folder, verify=False)


def test_lengths_are_counted_and_described_by_real_lengths():
    assert length_histogram([9, 3, 3]) == {"tokens": [3, 9], "rows": [2, 1]}
    assert length_histogram([]) == {"tokens": [], "rows": []}
    figures = length_figures([*range(1, 101)])
    assert figures == LengthFigures(min=1, p1=1, p10=10, p50=50, p90=90, p99=99, max=100, mean=50.5)
    assert replace(length_figures([7]), mean=0.0) == LengthFigures(
        min=7, p1=7, p10=7, p50=7, p90=7, p99=7, max=7, mean=0.0
    )
