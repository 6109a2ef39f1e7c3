import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import read, reasons, texts

from pipeline.config import Task
from pipeline.contract.errors import ConfigError, DataError
from pipeline.data.rows import SourceRow


def read_conll(path, content, **settings):
    path.write_bytes(content)
    columns = {"text_column": "0", "label_column": "-1", **settings}
    return read(path, task=Task.TOKEN, **columns)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_csv_reads_quotes_newlines_and_both_line_endings(tmp_path, mark, ending):
    lines = [b"text,label", b'"one, ""two""', b'three",0', b"", b"caf\xc3\xa9,1"]
    path = tmp_path / "a.csv"
    path.write_bytes(mark + ending.join(lines) + ending)

    rows = read(path)

    newline = ending.decode()
    assert texts(rows) == [(2, f'one, "two"{newline}three', ("0",)), (5, "café", ("1",))]


def test_csv_unclosed_quote_costs_one_line_and_not_the_rest_of_the_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\ngood,0\n"never closed,1\n"fine",0\nalso fine,1\n')

    rows = read(path)

    assert [text for _, text, _ in texts(rows)] == ["good", "fine", "also fine"]
    assert reasons(rows) == [(3, "broken_quotes")]


def test_csv_unclosed_quote_on_the_last_rows_keeps_those_below(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"never closed,1\nb,0\nc,1\n')

    rows = read(path)

    assert texts(rows) == [(3, "b", ("0",)), (4, "c", ("1",))]
    assert reasons(rows) == [(2, "broken_quotes")]


def test_csv_rejects_each_bad_row_with_its_line_and_reason(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\nlatin \xe9,1\na,b,1\nlone\nno label, \nok,1\n")

    rows = read(path)

    assert reasons(rows) == [
        (2, "undecodable"),
        (3, "wrong_column_count"),
        (4, "wrong_column_count"),
        (5, "label_missing"),
    ]
    assert rows[0].value == r"latin \udce9"
    assert texts(rows) == [(6, "ok", ("1",))]


def test_csv_takes_texts_longer_than_the_csv_modules_limit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"text,label\n{'x' * 200_000},0\n")

    assert len(read(path)[0].text) == 200_000


def test_tsv_splits_at_tabs_and_reads_quotes_like_csv(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('label\ttext\npos\ta, b\nneg\t"one\ttwo ""three""\nfour"\npos\t5" disk\n')

    assert texts(read(path)) == [
        (2, "a, b", ("pos",)),
        (3, 'one\ttwo "three"\nfour', ("neg",)),
        (5, '5" disk', ("pos",)),
    ]


def test_line_numbers_are_physical_after_embedded_newlines_and_broken_quotes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"1\n2\n3",x\n"bad"y,x\n\n"7\r\n8",x\nlone\nten,x\n')

    rows = read(path)

    assert [row.line for row in rows] == [2, 5, 7, 9, 10]
    assert reasons(rows) == [(5, "broken_quotes"), (9, "wrong_column_count")]
    assert rows[1].value == '"bad"y,x'


def test_jsonl_takes_text_and_scalar_labels_between_blank_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [{"text": "a", "label": "pos"}, {"text": "b", "label": " neg "}]
    path.write_text("\ufeff\n" + "\r\n\n".join(json.dumps(record) for record in records))

    assert texts(read(path)) == [(2, "a", ("pos",)), (4, "b", ("neg",))]


def test_jsonl_rejects_each_bad_row_with_its_line_and_reason(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'{"text": "ok", "label": 1}\n{"text": \n[1]\n{"label": 1}\n{"text": 5, "label": 1}\n'
        b'{"text": "t"}\n{"text": "t", "label": [1]}\n{"text": "\xff", "label": 1}\n'
    )

    assert reasons(read(path)) == [
        (2, "broken_json"),
        (3, "not_an_object"),
        (4, "text_missing"),
        (5, "text_not_string"),
        (6, "label_missing"),
        (7, "label_not_scalar"),
        (8, "undecodable"),
    ]


def test_jsonl_without_the_column_names_the_nearest(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "lable": 1}\n')

    with pytest.raises(DataError, match=r"no column 'label'.*Did you mean 'lable'\?"):
        read(path)


def test_jsonl_holds_words_with_labels(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": ["Ann", "sings"], "label": ["B-PER", "O"]}\n{"text": ["a"], "label": []}\n'
    )

    rows = read(path, task=Task.TOKEN)

    assert (rows[0].words, rows[0].labels) == (("Ann", "sings"), ("B-PER", "O"))
    assert reasons(rows) == [(2, "words_not_aligned")]


def test_parquet_gives_the_number_of_the_row(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", None, "c"], "label": [0, 1, None]}), path)

    rows = read(path)

    assert texts(rows) == [(1, "a", ("0",))]
    assert reasons(rows) == [(2, "text_missing"), (3, "label_missing")]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"texts": ["a"], "label": [1]}), r"no column 'text'.*Did you mean 'texts'\?"),
        (pa.table({"text": [], "label": []}), "the file has columns and no rows"),
    ],
)
def test_parquet_that_cannot_be_used_says_why(tmp_path, table, message):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)

    with pytest.raises(DataError, match=message):
        read(path)


def test_parquet_with_other_bytes_is_refused_by_name(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("text,label\n")

    with pytest.raises(DataError, match=r"a\.parquet: not a Parquet file"):
        read(path)


def test_conll_reads_sentences_between_blank_lines(tmp_path):
    rows = read_conll(
        tmp_path / "a.conll",
        b"-DOCSTART- -X- O\n\nAnn NNP B-PER\nsings VB O\n\n\nOslo NNP B-LOC",
    )

    assert [(row.line, row.words, row.labels) for row in rows] == [
        (3, ("Ann", "sings"), ("B-PER", "O")),
        (7, ("Oslo",), ("B-LOC",)),
    ]


def test_conll_keeps_blanks_inside_tab_separated_columns_and_reads_windows_lines(tmp_path):
    rows = read_conll(tmp_path / "a.conll", b"\xef\xbb\xbf#\tO\r\nOslo\tB-LOC\r\n\r\n")

    assert rows[0].words == ("#", "Oslo")
    assert rows[0].labels == ("O", "B-LOC")


def test_conll_rejects_a_whole_sentence_for_one_bad_line(tmp_path):
    rows = read_conll(tmp_path / "a.conll", b"a O\n\nb O\nc\n\nd\xe9 O\n\ne O\n")

    assert reasons(rows) == [(3, "wrong_column_count"), (6, "undecodable")]
    assert [row.words for row in rows if isinstance(row, SourceRow)] == [("a",), ("e",)]


def test_conll_columns_must_be_indices_that_exist(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.text_column.*got 'text'"):
        read_conll(tmp_path / "a.conll", b"a O\n", text_column="text")
    with pytest.raises(DataError, match="no column '2'"):
        read_conll(tmp_path / "a.conll", b"a O\n", label_column="2")
    with pytest.raises(DataError, match="the file has no sentences"):
        read_conll(tmp_path / "a.conll", b"\n\n")


def test_format_that_cannot_hold_the_task_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,1\n")

    with pytest.raises(DataError, match="csv files cannot hold rows for the task token_class"):
        read(path, task=Task.TOKEN)
