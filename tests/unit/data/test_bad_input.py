import bz2
import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_fakes import FailingFileSystem
from reading import read, reasons, texts

from pipeline.config import DataSettings, Task
from pipeline.contract.errors import DataError
from pipeline.data import delimited
from pipeline.data.formats import read_rows
from pipeline.data.rows import RejectReason, reject
from pipeline.data.source_file import SourceFile
from pipeline.data.sources import find_sources

LONG = "x" * 5_000_000
CONLL = {"task": Task.TOKEN, "text_column": "0", "label_column": "-1"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "the file is empty. Fill the file or take it out of the job."),
        ("a.csv", "\n\n", "the file is empty. Fill the file or take it out of the job."),
        ("a.tsv", "text\tlabel\n", "the file has a header and no rows. Fill the file or take"),
        ("a.jsonl", "\n", "the file is empty. Fill the file or take it out of the job."),
        ("a.conll", "", "the file has no sentences. Fill the file or take it out of the job."),
        ("a.csv", "text,label,text\na,1,b\n", "the column 'text' stands twice (index 0 and 2). Re"),
        ("a.csv", "text,label,id,id\na,1,2,3\n", "the column 'id' stands twice (index 2 and 3)."),
        ("a.parquet", "", "not a Parquet file, or broken after row 0: Parquet file size is 0 byte"),
    ],
)
def test_file_that_cannot_be_used_says_why(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)

    with pytest.raises(DataError) as caught:
        read(path, **(CONLL if name == "a.conll" else {}))

    assert str(caught.value).startswith(f"{path}: {message}")


def test_header_with_a_stray_quote_says_so(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('\n"text"s,label\na,1\n')

    with pytest.raises(DataError) as caught:
        read(path)

    assert str(caught.value) == (
        f"{path}:2: the header has a stray quote (got '\"text\"s,label'). "
        'Double it ("") inside quotes, or take it out.'
    )


def test_columns_without_a_name_may_stand_twice(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label,,\na,1,,\n")

    assert texts(read(path)) == [(2, "a", ("1",))]


def test_parquet_with_a_column_twice_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    columns = [pa.array(["a"]), pa.array(["b"]), pa.array([1])]
    pq.write_table(pa.Table.from_arrays(columns, ["text", "text", "label"]), path)

    with pytest.raises(DataError, match=r"the column 'text' stands twice \(index 0 and 1\)"):
        read(path)


def test_header_that_stands_again_is_no_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,1\ntext,label\nb,2\n")

    rows = read(path)

    assert rows[1] == reject(str(path), 3, RejectReason.REPEATED_HEADER, ["text", "label"])
    assert [text for _, text, _ in texts(rows)] == ["a", "b"]


def test_nul_is_left_to_cleaning_where_the_format_allows_it(tmp_path):
    csv, jsonl = tmp_path / "a.csv", tmp_path / "a.jsonl"
    csv.write_bytes(b"text,label\na\x00b,1\n")
    jsonl.write_bytes(b'{"text": "a\\u0000b", "label": "1"}\n{"text": "a\x00b", "label": "1"}\n')

    rows = read(jsonl)

    assert texts(read(csv)) == [(2, "a\x00b", ("1",))]
    assert texts(rows) == [(1, "a\x00b", ("1",))]
    assert reasons(rows) == [(2, "broken_json")]


def test_lone_surrogates_make_a_row_bad(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [("\ud800x", "1"), ("a", "\udc00"), ("\U0001f600", "1")]
    path.write_text("\n".join(json.dumps({"text": t, "label": lab}) for t, lab in records))

    rows = read(path)

    assert rows[:2] == [
        reject(str(path), 1, RejectReason.UNDECODABLE, "\\ud800x"),
        reject(str(path), 2, RejectReason.UNDECODABLE, "\\udc00"),
    ]
    assert texts(rows) == [(3, "\U0001f600", ("1",))]


@pytest.mark.slow
def test_line_of_five_megabytes_is_read_whole(tmp_path):
    csv, jsonl = tmp_path / "a.csv", tmp_path / "a.jsonl"
    csv.write_text(f'text,label\n{LONG},1\n"{LONG}",2\nend,3\n')
    jsonl.write_text(f'{json.dumps({"text": LONG, "label": "1"})}\n{{"text": "end", "label": "3"}}')

    lengths = [(line, len(text)) for path in (csv, jsonl) for line, text, _ in texts(read(path))]

    assert lengths == [(2, 5_000_000), (3, 5_000_000), (4, 3), (1, 5_000_000), (2, 3)]


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("a.csv", "text,label\né,1\n", {}),
        ("a.tsv", "text\tlabel\né\t1\n", {}),
        ("a.jsonl", '{"text": "é", "label": "1"}\n', {}),
        ("a.conll", "é 1\n", CONLL),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
def test_marks_endings_and_encodings_make_no_difference(
    tmp_path, name, content, settings, ending, encoding
):
    path = tmp_path / name
    path.write_bytes(content.replace("\n", ending).encode(encoding))
    asked = "auto" if encoding == "utf-8-sig" else encoding

    (row,) = read(path, encoding=asked, **settings)

    assert (row.words or (row.text,), row.labels) == (("é",), ("1",))


def test_bytes_outside_the_asked_encoding_cost_their_row(tmp_path):
    csv, jsonl = tmp_path / "a.csv", tmp_path / "a.jsonl"
    csv.write_bytes(b"text,label\nsmart \x93,1\nundefined \x81,1\n")
    jsonl.write_bytes(b'{"text": "\x81", "label": "1"}\n')

    rows = read(csv, encoding="cp1252")

    assert texts(rows) == [(2, "smart “", ("1",))]
    assert reasons(rows) == [(3, "undecodable")]
    assert reasons(read(jsonl, encoding="cp1252")) == [(1, "undecodable")]
    assert reasons(read(csv)) == [(2, "undecodable"), (3, "undecodable")]


def test_quoted_field_that_never_ends_is_given_up_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "_MAX_CONTINUED_CHARS", 100)
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"open,1\n' + "good,2\n" * 200)

    rows = read(path)

    assert reasons(rows) == [(2, "broken_quotes")]
    assert len(texts(rows)) == 200


@pytest.mark.parametrize(
    ("name", "compress"),
    [("a.csv.gz", gzip.compress), ("a.csv.bz2", bz2.compress), ("a.csv.xz", lzma.compress)],
)
def test_compressed_files_are_read_and_broken_ones_named(tmp_path, name, compress):
    path = tmp_path / name
    content = compress(("text,label\n" + "".join(f"row {n},1\n" for n in range(2000))).encode())
    path.write_bytes(content)

    assert len(texts(read(path))) == 2000

    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}: the compressed file is broken: Compressed file ended before the end-of-stream "
        "marker was reached. Compress or fetch it again; `gzip -t`, `bzip2 -t` or `xz -t` tests it."
    )


def test_altered_gzip_is_named(tmp_path):
    path = tmp_path / "a.csv.gz"
    content = bytearray(gzip.compress(b"text,label\na,1\n"))
    content[-8] ^= 1
    path.write_bytes(content)

    with pytest.raises(DataError, match=r"a\.csv\.gz: the compressed file is broken: CRC check fa"):
        read(path)


def test_parquet_broken_in_the_middle_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"{n}" * 9 for n in range(3000)], "label": [1] * 3000})
    pq.write_table(table, path, row_group_size=1000, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle - 2000 : middle + 2000] = b"\xff" * 4000
    path.write_bytes(content)

    with pytest.raises(
        DataError, match=r"a\.parquet: (not a Parquet file, or broken|it cannot be)"
    ):
        read(path)


def test_what_is_no_parquet_is_told_in_one_sentence_and_the_remedy(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("text,label\n" * 9)

    with pytest.raises(
        DataError, match=r"[^.]\. Write it again, or set data\.format to what it is"
    ):
        read(path)


def test_machine_that_fails_while_reading_is_named():
    source = SourceFile(
        file_system=FailingFileSystem(),
        path="rows.csv",
        name="failing://rows.csv",
        format="csv",
        compression=None,
        codec="utf-8-sig",
        given_split=None,
        sha256="",
    )
    data = DataSettings(files=("failing://rows.csv",))

    with pytest.raises(DataError) as caught:
        list(read_rows(source, data, Task.SEQUENCE))

    assert str(caught.value) == (
        "failing://rows.csv: it cannot be read: Input/output error. "
        "Check that it is there and may be read."
    )


def test_readers_give_the_first_row_before_they_read_the_last(tmp_path):
    path = tmp_path / "a.csv.gz"
    content = gzip.compress(b"text,label\n" + b"a,1\n" * 2_000_000)
    path.write_bytes(content[:-100])
    data = DataSettings(files=(str(path),))
    (source,) = find_sources(data)

    rows = read_rows(source, data, Task.SEQUENCE)

    assert next(rows).line == 2
    rows.close()
