import pyarrow as pa
import pytest
from row_samples import recipe_of

from pipeline.config import Task
from pipeline.data import blocks
from pipeline.data.blocks import BLOCK_SCHEMA, REASONS, read_blocks
from pipeline.data.row_facts import FactsBuilder
from pipeline.data.rows import RejectReason
from pipeline.data.sources import find_sources


def read(path, recipe):
    sources = find_sources(recipe.data.model_copy(update={"files": (str(path),)}))
    return list(read_blocks(sources[0], 3, recipe))


def write_rows(path, rows):
    path.write_text("text,label\n" + "".join(f"{row}\n" for row in rows))
    return path


def test_rows_stand_in_order_with_text_label_line_and_reason(tmp_path):
    path = write_rows(tmp_path / "a.csv", ["one  two,a", " ,b", "three,b"])

    table = pa.concat_tables(read(path, recipe_of()))

    assert table.schema == BLOCK_SCHEMA
    assert table.column("file").to_pylist() == [3, 3, 3]
    assert table.column("line").to_pylist() == [2, 3, 4]
    assert table.column("text").to_pylist() == ["one two", "", "three"]
    assert table.column("labels").to_pylist() == [["a"], [], ["b"]]
    empty = REASONS.index(RejectReason.EMPTY_TEXT)
    assert table.column("reason").to_pylist() == [-1, empty, -1]
    assert table.column("given_split").to_pylist() == [-1, -1, -1]


def test_equal_texts_and_labels_have_equal_hashes_wherever_they_stand(tmp_path):
    path = write_rows(tmp_path / "a.csv", ["x,a", " x,a", "x,b", "y,a"])

    table = pa.concat_tables(read(path, recipe_of()))

    for column, expected in (("text_high", [0, 0, 0, 3]), ("label_hash", [0, 0, 2, 0])):
        values = table.column(column).to_pylist()
        assert [values.index(value) for value in values] == expected


@pytest.mark.parametrize(("rows", "chars"), [(2, 10_000), (4096, 12)])
def test_block_ends_at_either_limit_and_loses_no_row(tmp_path, monkeypatch, rows, chars):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", rows)
    monkeypatch.setattr(blocks, "BLOCK_CHARS", chars)
    path = write_rows(tmp_path / "a.csv", [f"text{i},a" for i in range(7)])

    tables = read(path, recipe_of())

    assert len(tables) > 3
    assert pa.concat_tables(tables).column("line").to_pylist() == list(range(2, 9))


def test_facts_are_gathered_over_blocks_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 2)
    recipe = recipe_of(sample_rows=2)
    path = write_rows(tmp_path / "a.csv", [f"text{i},a" for i in range(5)])
    source = find_sources(recipe.data.model_copy(update={"files": (str(path),)}))[0]
    builder = FactsBuilder(3, has_sample=True)

    for file in (0, 2):
        for block in read_blocks(source, file, recipe):
            builder.add(block)
    facts = builder.build()

    assert facts.file_starts.tolist() == [0, 5, 5, 10]
    assert [facts.file_of(row) for row in (0, 4, 5, 9)] == [0, 0, 2, 2]
    assert facts.text_high[:5].tolist() == facts.text_high[5:].tolist()
    assert len(set(facts.draw.tolist())) == 5


def test_words_and_their_labels_come_from_conll(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Anna B-PER\nsings O\n")
    recipe = recipe_of(Task.TOKEN, text_column="0", label_column="-1")

    (table,) = read(path, recipe)

    assert table.column("text").to_pylist() == ["Anna sings"]
    assert table.column("labels").to_pylist() == [["B-PER", "O"]]
