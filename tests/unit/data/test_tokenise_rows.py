import numpy as np
import pytest
from row_samples import spool_of

from pipeline.config import Task
from pipeline.contract.tokenization import TextSettings
from pipeline.data.tokenise import Fit, Tokeniser, TokenRecipe, divide_work
from pipeline.data.vocabulary import train_text_encoder

SETTINGS = TextSettings(max_seq_len=6)
ENCODER = train_text_encoder(lambda: iter(["a b c d e f g h"]), vocab_size=100, settings=SETTINGS)
ROWS = [("a b", ["x"]), ("c", ["y"]), ("a b c d e f g", ["x"]), ("d e f", ["z"])]
ALL_TRAIN = np.zeros(4, dtype=np.int8)


def tokenise(tmp_path, rows, split, *, rows_per_block=3, **changes):
    spool = spool_of(tmp_path / "spool", rows, rows_per_block=rows_per_block)
    values = {
        "spool": spool.path,
        "tokenizer_json": ENCODER.to_json(),
        "settings": SETTINGS,
        "task": Task.SEQUENCE,
        "labels": ("z", "y", "x"),
        "has_pairs": False,
        "on_too_long": "truncate",
        "window_stride": 1,
        **changes,
    }
    tokeniser = Tokeniser(TokenRecipe(**values))
    found = [tokeniser(work) for work in divide_work(spool, split)]
    return [row for table in found for row in table.to_pylist()]


def ids_of(text):
    return ENCODER.encode_texts([text])[0].input_ids.tolist()


@pytest.mark.parametrize("rows_per_block", [1, 3, 4])
def test_kept_rows_get_ids_split_and_label_ids_in_order(tmp_path, rows_per_block):
    split = np.array([2, -1, 0, 1], dtype=np.int8)

    rows = tokenise(tmp_path, ROWS, split, rows_per_block=rows_per_block)

    assert [(row["row"], row["split"], row["labels"]) for row in rows] == [
        (0, 2, [2]),
        (2, 0, [2]),
        (3, 1, [0]),
    ]
    assert [row["input_ids"] for row in rows] == [ids_of(ROWS[i][0]) for i in (0, 2, 3)]
    assert [row["fit"] for row in rows] == [Fit.WHOLE, Fit.TRUNCATED, Fit.WHOLE]


def test_over_long_rows_are_marked_when_they_are_to_be_rejected(tmp_path):
    rows = tokenise(tmp_path, ROWS, ALL_TRAIN, on_too_long="reject")

    assert [row["fit"] for row in rows] == [Fit.WHOLE, Fit.WHOLE, Fit.TOO_LONG, Fit.WHOLE]


def test_over_long_train_rows_become_windows_with_their_label(tmp_path):
    rows = tokenise(tmp_path, ROWS, ALL_TRAIN, on_too_long="window")

    assert [(row["row"], row["window"], row["labels"]) for row in rows] == [
        (0, 0, [2]),
        (1, 0, [1]),
        (2, 0, [2]),
        (2, 1, [2]),
        (3, 0, [0]),
    ]
    assert [row["input_ids"] for row in rows[2:4]] == [ids_of("a b c d"), ids_of("d e f g")]
    assert [row["fit"] for row in rows] == [0, 0, Fit.WINDOW, Fit.WINDOW, 0]


def test_over_long_rows_of_other_splits_are_cut_as_serving_does(tmp_path):
    split = np.array([0, 0, 2, 0], dtype=np.int8)

    rows = tokenise(tmp_path, ROWS, split, on_too_long="window")

    assert len(rows) == 4
    assert (rows[2]["fit"], rows[2]["input_ids"]) == (Fit.TRUNCATED, ids_of("a b c d"))


@pytest.mark.parametrize("on_too_long", ["truncate", "window"])
def test_token_labels_follow_their_words(tmp_path, on_too_long):
    text = "a b c d e f g"
    labels = ["x", "y", "z", "z", "y", "x", "y"]

    rows = tokenise(
        tmp_path, [(text, labels)], ALL_TRAIN[:1], task=Task.TOKEN, on_too_long=on_too_long
    )

    expected = [[-100, 2, 1, 0, 0, -100], [-100, 0, 1, 2, 1, -100]]
    assert [row["labels"] for row in rows] == expected[: 1 if on_too_long == "truncate" else 2]


def test_several_labels_stand_in_the_order_of_their_ids_or_not_at_all(tmp_path):
    rows = [("a", ["x", "z"]), ("b", []), ("c", ["x", "y", "z"])]

    found = tokenise(tmp_path, rows, ALL_TRAIN[:3], task=Task.MULTI_LABEL)

    assert [row["labels"] for row in found] == [[0, 2], [], [0, 1, 2]]


def test_no_kept_row_is_left_out_of_the_work_however_small_the_blocks(tmp_path):
    rows = [(f"a {i}", ["x"]) for i in range(50)]
    spool = spool_of(tmp_path / "spool", rows, rows_per_block=3)
    split = np.full(50, -1, dtype=np.int8)
    split[[0, 20, 49]] = 0

    works = divide_work(spool, split)

    covered = np.zeros(50, dtype=np.int8)
    for work in works:
        splits = np.frombuffer(work.splits, dtype=np.int8)
        assert work.first_row == spool.starts[work.blocks[0]]
        assert len(splits) == spool.starts[work.blocks[-1] + 1] - work.first_row
        covered[work.first_row : work.first_row + len(splits)] += splits >= 0
    assert np.flatnonzero(covered == 1).tolist() == [0, 20, 49]
    assert divide_work(spool, np.full(50, -1, dtype=np.int8)) == []
