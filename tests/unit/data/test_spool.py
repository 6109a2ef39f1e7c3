import numpy as np
import pytest
from row_samples import spool_of

ROWS = [(f"text {i}", ["a"] * (i % 3)) for i in range(10)]


@pytest.mark.parametrize("rows_per_block", [1, 3, 10])
def test_blocks_give_back_all_rows_in_order(tmp_path, rows_per_block):
    spool = spool_of(tmp_path / "spool", ROWS, rows_per_block=rows_per_block)

    read = list(spool.blocks())

    assert spool.num_rows == 10
    assert [text for _, block in read for text in block.column("text").to_pylist()] == [
        text for text, _ in ROWS
    ]
    assert [rows.start for rows, _ in read] == list(range(0, 10, rows_per_block))


@pytest.mark.parametrize("rows", [[], [0], [2, 3], [0, 2, 2, 5, 9]])
def test_single_rows_are_taken_over_block_bounds(tmp_path, rows):
    spool = spool_of(tmp_path / "spool", ROWS)

    assert spool.take("text", np.array(rows, dtype=np.int64)).to_pylist() == [
        ROWS[row][0] for row in rows
    ]
    assert spool.take("labels", np.array(rows, dtype=np.int64)).to_pylist() == [
        ROWS[row][1] for row in rows
    ]


def test_spool_without_rows_has_none(tmp_path):
    spool = spool_of(tmp_path / "spool", [])

    assert spool.num_rows == 0
    assert list(spool.blocks()) == []
