import numpy as np
import pytest
from row_samples import spool_of

from pipeline.config import Task
from pipeline.contract.errors import DataError
from pipeline.data.label_counts import (
    LabelCounts,
    check_labels,
    check_no_label_lost,
    count_labels,
    order_labels,
)


def counts_of(num_rows=(8, 1, 1), **counts):
    return LabelCounts(
        counts={label: np.array(found) for label, found in counts.items()},
        num_rows=np.array(num_rows),
    )


def test_labels_are_counted_by_split_over_all_blocks(tmp_path):
    rows = [("x", ["a"]), ("y", ["a", "b"]), ("z", []), ("u", ["c"]), ("v", ["a"])]
    spool = spool_of(tmp_path / "spool", rows, rows_per_block=2)

    found = count_labels(spool, np.array([0, 0, 1, -1, 2], dtype=np.int8))

    assert {label: counts.tolist() for label, counts in found.counts.items()} == {
        "a": [2, 0, 1],
        "b": [1, 0, 0],
    }
    assert found.num_rows.tolist() == [2, 1, 1]
    assert (found.of("train"), found.of("test")) == ({"a", "b"}, {"a"})


def test_labels_stand_in_the_order_of_label_names_then_by_number_or_name():
    assert order_labels(["10", "9", "0"], []) == ["0", "9", "10"]
    assert order_labels(["b", "a"], ["b", "unused", "a"]) == ["b", "a"]
    assert order_labels(["I-X", "O", "B-X"], []) == ["O", "B-X", "I-X"]


def test_rows_that_can_be_learned_from_pass():
    check_labels(counts_of(a=(4, 1, 0), b=(4, 0, 1)), Task.SEQUENCE)
    check_labels(counts_of(a=(4, 1, 0)), Task.MULTI_LABEL)


def test_words_that_all_have_one_label_are_refused():
    with pytest.raises(DataError, match=r"there is only one label, so .* \(got \['O'\]\)"):
        check_labels(counts_of(O=(40, 5, 5)), Task.TOKEN)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (counts_of((0, 0, 0)), r"data\.files: no usable row is left"),
        (counts_of(a=(8, 1, 1)), r"there is only one label, so .* \(got \['a'\]\)\. Add rows"),
        (counts_of((9, 1, 0), a=(5, 1, 0), b=(4, 0, 0)), r"no row falls to the test split \(got"),
        (
            counts_of((2, 1, 1), a=(1, 1, 1), b=(1, 0, 0), c=(0, 0, 0)),
            r"data\.label_column: there are more labels \(3\) than train rows \(2\) \(got \['a'",
        ),
        (
            counts_of(a=(4, 1, 0), b=(4, 0, 0), rare=(0, 0, 1)),
            r"labels of the test rows never occur among the 8 train rows \(got \['rare'\]\)",
        ),
        (
            counts_of(a=(4, 0, 0), b=(4, 0, 1), rare=(0, 1, 0)),
            r"labels of the validation rows never occur .* \(got \['rare'\]\)",
        ),
    ],
)
def test_rows_that_cannot_be_learned_from_are_refused(found, message):
    with pytest.raises(DataError, match=message):
        check_labels(found, Task.SEQUENCE)


def test_task_with_several_labels_needs_one():
    with pytest.raises(DataError, match="no row has a label"):
        check_labels(counts_of(), Task.MULTI_LABEL)


def test_label_lost_to_the_length_limit_is_named():
    found = counts_of(a=(4, 1, 1))

    check_no_label_lost(["a"], found)
    with pytest.raises(DataError, match=r"over model\.max_seq_len \(got \['b'\]\)"):
        check_no_label_lost(["a", "b"], found)
