import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import read, reasons, texts

from pipeline.config import Task
from pipeline.data.labels import LabelReader, split_labels
from pipeline.data.rows import RejectReason


def write_jsonl(path, *labels):
    records = [{"text": "t", "label": label} for label in labels]
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def labels_of(rows):
    return [labels for _, _, labels in texts(rows)]


def test_whole_numbers_are_integers_and_fractions_are_no_labels(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", 1, 2.0, -0.0, 0.5, float("nan"), float("inf"))

    rows = read(path)

    assert labels_of(rows) == [("1",), ("2",), ("0",)]
    assert reasons(rows) == [(line, "label_other_type") for line in (4, 5, 6)]


def test_parquet_numbers_that_became_floats_are_integers_again(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"], "label": [0.0, None, 1.5]}), path)

    rows = read(path)

    assert labels_of(rows) == [("0",)]
    assert reasons(rows) == [(2, "label_missing"), (3, "label_other_type")]


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["a", 1, True, "b"], [("a",), ("b",)]),
        ([1, "1", True, 2], [("1",), ("2",)]),
        ([True, 1, "true", False], [("true",), ("false",)]),
    ],
)
def test_labels_are_of_the_kind_of_the_files_first(tmp_path, labels, kept):
    rows = read(write_jsonl(tmp_path / "a.jsonl", *labels))

    assert labels_of(rows) == kept
    assert reasons(rows) == [(2, "label_other_type"), (3, "label_other_type")]


def test_late_change_of_type_rejects_the_late_rows(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", *[1] * 5000, "1", [1], {"a": 1}, None)

    rows = read(path)

    assert [(row.line, row.reason.value, row.value) for row in rows[5000:]] == [
        (5001, "label_other_type", "1"),
        (5002, "label_not_scalar", "[1]"),
        (5003, "label_not_scalar", "{'a': 1}"),
        (5004, "label_missing", "t"),
    ]


def test_each_file_has_a_kind_of_its_own(tmp_path):
    numbers = read(write_jsonl(tmp_path / "a.jsonl", 1))
    text = read(write_jsonl(tmp_path / "b.jsonl", "1"))

    assert labels_of(numbers) == labels_of(text) == [("1",)]


def test_word_labels_are_of_one_kind_too(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": ["a", "b"], "label": [0, 1]}\n{"text": ["a"], "label": ["O"]}\n')

    rows = read(path, task=Task.TOKEN)

    assert rows[0].labels == ("0", "1")
    assert reasons(rows) == [(2, "label_other_type")]


def test_multi_label_lists_are_sorted_and_each_label_stands_once(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ["b", "a", " b "], [], ["a"])

    assert labels_of(read(path, task=Task.MULTI_LABEL)) == [("a", "b"), (), ("a",)]


def test_multi_label_rows_that_are_no_lists_of_labels_are_rejected(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ["a"], None, "a|b", ["a", None], [["a"]], ["a", 1])
    with path.open("a") as file:
        file.write('\n{"text": "t"}\n')

    rows = read(path, task=Task.MULTI_LABEL)

    assert reasons(rows) == [
        (2, "label_missing"),
        (3, "label_not_list"),
        (4, "label_missing"),
        (5, "label_not_scalar"),
        (6, "label_other_type"),
        (7, "label_missing"),
    ]


def test_multi_label_parquet_holds_lists(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["a", "b", "c"], "label": [[2, 1], [], None]})
    pq.write_table(table, path)

    rows = read(path, task=Task.MULTI_LABEL)

    assert labels_of(rows) == [("1", "2"), ()]
    assert reasons(rows) == [(3, "label_missing")]


def test_separator_splits_fields_and_strings_and_an_empty_one_has_no_labels(tmp_path):
    csv = tmp_path / "a.csv"
    csv.write_text("text,label\nt,b | a\nt,\nt, \nt,a||a|\n")
    settings = {"task": Task.MULTI_LABEL, "label_separator": "|"}

    assert labels_of(read(csv, **settings)) == [("a", "b"), (), (), ("a",)]
    jsonl = write_jsonl(tmp_path / "a.jsonl", "b | a", "", ["a|b"])
    assert labels_of(read(jsonl, **settings)) == [("a", "b"), (), ("a|b",)]


def test_field_without_a_separator_is_one_label_or_none(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\nt\ta | b\nt\t\n")

    assert labels_of(read(path, task=Task.MULTI_LABEL)) == [("a | b",), ()]


def test_single_label_task_refuses_lists_and_empty_fields(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nt,\n")

    assert reasons(read(path)) == [(2, "label_missing")]
    assert reasons(read(write_jsonl(tmp_path / "a.jsonl", ["a"]))) == [(1, "label_not_scalar")]


@given(st.lists(st.text("ab |,\t", max_size=6)), st.text("|,; ", min_size=1, max_size=2))
def test_split_labels_are_bare_and_hold_no_separator(parts, separator):
    labels = split_labels(separator.join(parts), separator)

    assert all(label and label == label.strip() for label in labels)
    assert all(separator not in label for label in labels if separator.strip())


@given(
    st.lists(st.one_of(st.text(max_size=3), st.integers(), st.booleans(), st.floats()), max_size=6)
)
def test_read_labels_are_never_empty_and_of_one_kind(values):
    reader = LabelReader(Task.SEQUENCE, None)

    read_values = [(value, reader.read(value)) for value in values]

    good = [
        (value, labels) for value, labels in read_values if not isinstance(labels, RejectReason)
    ]
    assert all(len(labels) == 1 and labels[0].strip() == labels[0] != "" for _, labels in good)
    assert len({"n" if type(value) in (int, float) else type(value) for value, _ in good}) <= 1
