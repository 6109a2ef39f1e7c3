import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import DataSettings, Task
from pipeline.contract.errors import DataError
from pipeline.data.cleaning import CleanRow
from pipeline.data.selection import (
    assign_splits,
    order_labels,
    sample_rows,
    share_out,
    split_of,
)

DATA = DataSettings(files=("x.csv",))


def rows_of(labels, *, prefix="text"):
    return [
        CleanRow(
            row_id=index,
            file="x.csv",
            line=index + 2,
            text=f"{prefix} {index}",
            words=None,
            labels=(label,),
            text_sha256=hashlib.sha256(f"{prefix} {index}".encode()).digest(),
        )
        for index, label in enumerate(labels)
    ]


def sample(rows, count, seed=0):
    return sample_rows(rows, count=count, seed=seed, task=Task.SEQUENCE)


def test_split_follows_the_hash_and_the_shares():
    shares = {"validation_share": 0.25, "test_share": 0.25}

    assert split_of(bytes([0x3F] + [0] * 31), **shares) == "test"
    assert split_of(bytes([0x40] + [0] * 31), **shares) == "validation"
    assert split_of(bytes([0x80] + [0] * 31), **shares) == "train"


def test_rows_keep_their_split_when_rows_are_added():
    few, many = rows_of(["a", "b"] * 100), rows_of(["a", "b"] * 200)

    assert assign_splits(many, DATA, Task.SEQUENCE)[:200] == assign_splits(few, DATA, Task.SEQUENCE)


def test_shares_of_the_splits_are_about_those_asked_for():
    sizes = Counter(assign_splits(rows_of(["a", "b"] * 2000), DATA, Task.SEQUENCE))

    assert abs(sizes["test"] - 400) < 80
    assert abs(sizes["validation"] - 400) < 80


def test_sample_takes_equally_of_each_label_and_differs_by_seed():
    rows = rows_of(["a"] * 90 + ["b"] * 30)

    chosen = sample(rows, 40)

    assert Counter(row.labels[0] for row in chosen) == {"a": 20, "b": 20}
    assert [row.row_id for row in chosen] == sorted(row.row_id for row in chosen)
    assert sample(rows, 40) == chosen
    assert sample(rows, 40, seed=1) != chosen


def test_sample_of_all_rows_is_all_rows():
    rows = rows_of(["a", "b", "b"])

    assert sample(rows, 10) == rows


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 50), min_size=1), st.integers(0, 200))
def test_share_out_gives_all_that_fits_and_never_more_than_there_is(available, count):
    quotas = share_out(available, count)

    assert sum(quotas.values()) == min(count, sum(available.values()))
    assert all(quotas[label] <= available[label] for label in available)
    unfilled = [quotas[label] for label in available if quotas[label] < available[label]]
    assert not unfilled or max(quotas.values()) <= min(unfilled) + 1


def test_labels_stand_in_the_order_of_label_names_then_by_number_or_name():
    assert order_labels(rows_of(["10", "9", "0"]), []) == ["0", "9", "10"]
    assert order_labels(rows_of(["b", "a"]), ["b", "unused", "a"]) == ["b", "a"]
    assert order_labels(rows_of(["I-X", "O", "B-X"]), []) == ["O", "B-X", "I-X"]


def test_one_label_is_nothing_to_tell_apart():
    with pytest.raises(DataError, match=r"only one label.*got \['a'\]"):
        assign_splits(rows_of(["a"] * 50), DATA, Task.SEQUENCE)
    with pytest.raises(DataError, match="no usable row is left"):
        assign_splits([], DATA, Task.SEQUENCE)


def test_empty_split_is_named():
    with pytest.raises(DataError, match="no row falls to the"):
        assign_splits(rows_of(["a", "b"]), DATA, Task.SEQUENCE)


def test_label_that_train_never_sees_is_named():
    rows = rows_of(["a", "b"] * 100)
    place = assign_splits(rows, DATA, Task.SEQUENCE).index("test")
    labels = ["a", "b"] * 100
    labels[place] = "rare"

    with pytest.raises(DataError, match=r"labels of the test rows never occur.*got \['rare'\]"):
        assign_splits(rows_of(labels), DATA, Task.SEQUENCE)
