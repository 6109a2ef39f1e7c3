import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import read, reasons, texts

from pipeline.config import DataSettings, Task
from pipeline.contract.errors import ConfigError, DataError
from pipeline.data.formats import read_rows
from pipeline.data.rows import SourceRow, reject
from pipeline.data.sources import find_sources

PAIR = {"text_column": "a", "text_pair_column": "b"}


def write(path, content):
    path.write_text(content)
    return path


def write_jsonl(path, *records):
    return write(path, "\n".join(json.dumps(record) for record in records))


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_columns_go_by_name_or_by_index(tmp_path, ending, delimiter):
    path = write(tmp_path / f"a.{ending}", "id,y,x\n7,pos,good\n".replace(",", delimiter))

    by_name = read(path, text_column="x", label_column="y")
    by_index = read(path, text_column="2", label_column="1")

    assert texts(by_name) == texts(by_index) == [(2, "good", ("pos",))]


def test_digits_in_the_header_are_a_name_first(tmp_path):
    path = write(tmp_path / "a.csv", "label,x,0\npos,no,yes\n")

    assert texts(read(path, text_column="0")) == [(2, "yes", ("pos",))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"text_column": "Txt"},
            "there is no column 'Txt'. Did you mean 'text'? The file has 'text', 'label', "
            "'fold'; set data.text_column.",
        ),
        (
            {"label_column": "lable"},
            "there is no column 'lable'. Did you mean 'label'? The file has 'text', 'label', "
            "'fold'; set data.label_column.",
        ),
        (
            {"text_pair_column": "premise"},
            "there is no column 'premise'. The file has 'text', 'label', 'fold'; "
            "set data.text_pair_column.",
        ),
        (
            {"split_column": "3"},
            "there is no column '3'. The file has 'text', 'label', 'fold'; set data.split_column.",
        ),
        (
            {"text_column": "1"},
            "data.text_column and data.label_column ask for the same column. "
            "Change data.label_column.",
        ),
    ],
)
def test_csv_without_an_asked_column_says_which_setting_asks(tmp_path, settings, message):
    path = write(tmp_path / "a.csv", "text,label,fold\na,1,train\n")

    with pytest.raises(DataError) as caught:
        read(path, **settings)

    assert str(caught.value) == f"{path}: {message}"


def test_long_and_many_names_do_not_flood_the_message(tmp_path):
    header = ",".join(["x" * 100, *(f"c{index}" for index in range(30))])
    path = write(tmp_path / "a.csv", f"{header}\n{'a,' * 30}a\n")

    with pytest.raises(DataError) as caught:
        read(path)

    shown = ", ".join(f"'c{index}'" for index in range(19))
    assert str(caught.value) == (
        f"{path}: there is no column 'text'. The file has '{'x' * 61}...', {shown} and 11 more; "
        "set data.text_column."
    )


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_records_without_an_asked_column_say_which_setting_asks(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    if ending == "jsonl":
        write_jsonl(path, {"text": "a", "label": 1})
    else:
        pq.write_table(pa.table({"text": ["a"], "label": [1]}), path)

    with pytest.raises(DataError) as caught:
        read(path, text_pair_column="texts")

    assert str(caught.value) == (
        f"{path}: there is no column 'texts'. Did you mean 'text'? "
        "The file has 'text', 'label'; set data.text_pair_column."
    )


def test_columns_of_parquet_and_jsonl_go_by_name_alone(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", {"text": "a", "label": 1})

    with pytest.raises(DataError, match="no column '0'"):
        read(path, text_column="0")


def test_pair_of_texts_is_read_from_every_format(tmp_path):
    pq.write_table(pa.table({"a": ["x"], "b": ["y"], "label": ["p"]}), tmp_path / "a.parquet")
    paths = [
        write(tmp_path / "a.csv", "a,label,b\nx,p,y\n"),
        write_jsonl(tmp_path / "a.jsonl", {"a": "x", "b": "y", "label": "p"}),
        tmp_path / "a.parquet",
    ]

    rows = [row for path in paths for row in read(path, **PAIR)]

    assert [(row.text, row.text_pair) for row in rows] == [("x", "y")] * 3


def test_pair_without_its_second_text_is_rejected(tmp_path):
    records = [{"a": "x", "b": text, "label": "p"} for text in ("y", None, 5)]

    rows = read(write_jsonl(tmp_path / "a.jsonl", *records), **PAIR)

    assert reasons(rows) == [(2, "text_missing"), (3, "text_not_string")]
    assert [row.value for row in rows[1:]] == ["x", "5"]


def test_split_column_takes_the_usual_words(tmp_path):
    words = ["train", "Training", "validation", "VALID", "val", "dev", "eval", "test", "testing"]
    path = write(tmp_path / "a.csv", "text,label,fold\n" + "".join(f"a,1, {w}\n" for w in words))

    splits = [row.split for row in read(path, split_column="fold")]

    assert splits == ["train"] * 2 + ["validation"] * 5 + ["test"] * 2


def test_row_of_no_known_split_is_rejected(tmp_path):
    records = [
        {"text": "a", "label": 1, "fold": "train"},
        {"text": "b", "label": 1, "fold": "holdout"},
        {"text": "c", "label": 1, "fold": None},
        {"text": "d", "label": 1},
        {"text": "e", "label": 1, "fold": 0},
    ]
    path = write_jsonl(tmp_path / "a.jsonl", *records)

    rows = read(path, split_column="fold")

    assert reasons(rows) == [(line, "unknown_split") for line in (2, 3, 4, 5)]
    assert [row.value for row in rows[1:]] == ["holdout", "", "", "0"]


def test_sentences_take_their_split_from_a_column(tmp_path):
    record = {"text": ["Ann"], "label": ["O"]}
    path = write_jsonl(tmp_path / "a.jsonl", record | {"fold": "dev"}, record | {"fold": "?"})

    rows = read(path, task=Task.TOKEN, split_column="fold")

    assert rows[0].split == "validation"
    assert rows[1:] == [reject(str(path), 2, rows[1].reason, "?")]
    assert reasons(rows) == [(2, "unknown_split")]


def test_rows_of_given_files_have_their_split(tmp_path):
    paths = [write(tmp_path / f"{name}.csv", f"text,label\n{name},1\n") for name in "abc"]
    a, b, c = map(str, paths)
    data = DataSettings(files=(a,), validation_files=(b,), test_files=(c,))

    rows = [row for s in find_sources(data) for row in read_rows(s, data, Task.SEQUENCE)]

    assert [(row.text, row.split) for row in rows] == [
        ("a", "train"),
        ("b", "validation"),
        ("c", "test"),
    ]


def test_sentences_of_given_conll_files_have_their_split(tmp_path):
    a, b = (str(write(tmp_path / f"{name}.conll", f"{name} O\n")) for name in "ab")
    data = DataSettings(files=(a,), test_files=(b,), text_column="0", label_column="-1")

    rows = [row for s in find_sources(data) for row in read_rows(s, data, Task.TOKEN)]

    assert [(row.words, row.split) for row in rows] == [(("a",), None), (("b",), "test")]
    assert all(isinstance(row, SourceRow) for row in rows)


def test_conll_has_no_split_column(tmp_path):
    path = write(tmp_path / "a.conll", "a O\n")

    with pytest.raises(ConfigError) as caught:
        read(path, task=Task.TOKEN, text_column="0", label_column="-1", split_column="2")

    assert str(caught.value) == (
        f"data.split_column: {path} is CoNLL, which has no split column (got '2'). "
        "Name the splits' files in data.validation_files and data.test_files."
    )


def test_conll_word_and_label_are_two_columns(tmp_path):
    path = write(tmp_path / "a.conll", "a\n")

    with pytest.raises(DataError, match=r"data\.text_column and data\.label_column ask for"):
        read(path, task=Task.TOKEN, text_column="0", label_column="-1")


@pytest.mark.parametrize(
    ("ending", "content", "hint"),
    [
        (
            "csv",
            "text;label\na;1\n",
            "separated by semicolons? That is not read; save the file with",
        ),
        ("csv", "text\tlabel\na\t1\n", "separated by tabs? Set data.format to tsv."),
        ("csv", "text|label\na|1\n", "separated by bars? That is not read"),
        ("tsv", "text,label\na,1\n", "separated by commas? Set data.format to csv."),
    ],
)
def test_a_header_of_one_column_with_separators_inside_tells_of_the_delimiter(
    tmp_path, ending, content, hint
):
    path = tmp_path / f"rows.{ending}"
    path.write_text(content)

    with pytest.raises(DataError) as caught:
        read(path)

    header = content.partition("\n")[0]
    assert str(caught.value).startswith(
        f"{path}: there is no column 'text'. The header is one column, {header!r}: are its columns "
    )
    assert hint in str(caught.value)
