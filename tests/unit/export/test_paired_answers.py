"""Which answers changed and where."""

import numpy as np
import pytest
from paired_samples import pair_ids

from pipeline.config import Task
from pipeline.export.paired_answers import (
    PartDrop,
    drops_by_bucket,
    drops_by_class,
    pair_answers,
    worst_part,
)

NAMES = ("bad", "good", "odd")


def test_a_class_loses_f1_and_counts_its_rows_and_flips():
    answers = pair_ids([0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1])

    bad, good = drops_by_class(answers, NAMES)

    # bad: F1 from 1 to 2/3, good: from 1 to 4/5; nobody bears or gives odd.
    assert bad == PartDrop(name="bad", drop=pytest.approx(1 / 3), rows=2, flips=1)
    assert good == PartDrop(name="good", drop=pytest.approx(1 / 5), rows=2, flips=1)


def test_labels_given_too_often_are_a_loss_of_their_multi_label_class():
    labels = [np.array([0]), np.array([], dtype=int), np.array([0, 2])]
    yes, no = 3.0, -3.0
    first = np.array([[yes, no, no], [no, no, no], [yes, no, yes]], dtype=np.float32)
    second = first.copy()
    second[1, 2] = yes

    answers = pair_answers(
        (list(first), list(second)),
        labels,
        task=Task.MULTI_LABEL,
        num_labels=3,
        row_ids=np.arange(3),
    )

    bad, odd = drops_by_class(answers, NAMES)
    assert (bad.drop, bad.rows, bad.flips) == (0.0, 2, 0)
    assert (odd.drop, odd.rows, odd.flips) == (pytest.approx(1 / 3), 1, 1)
    assert answers.is_flip.tolist() == [False, True, False]


def test_a_bucket_loses_accuracy_and_empty_buckets_are_left_out():
    answers = pair_ids([0, 0, 1, 1], [0, 0, 1, 0], [0, 1, 1, 2])

    parts = drops_by_bucket(answers, lengths=np.array([3, 4, 9, 9]), bucket_edges=[4, 6, 9])

    # The last row flips from wrong to wrong: a flip, no loss.
    assert parts == [
        PartDrop(name="1-4", drop=0.5, rows=2, flips=1),
        PartDrop(name="7-9", drop=0.0, rows=2, flips=1),
    ]


def test_words_lie_in_the_bucket_of_their_text_and_unlabelled_ones_nowhere():
    labels = [np.array([-100, 1]), np.array([0, -100, 1])]
    right = [np.eye(2, dtype=np.float32)[[0, 1]], np.eye(2, dtype=np.float32)[[0, 0, 1]]]
    wrong = [right[0], right[1][::-1]]

    answers = pair_answers(
        (right, wrong), labels, task=Task.TOKEN, num_labels=2, row_ids=np.array([8, 9])
    )

    assert answers.text_of.tolist() == [0, 1, 1]
    parts = drops_by_bucket(answers, lengths=np.array([2, 3]), bucket_edges=[2, 3])
    assert [(part.name, part.drop, part.rows, part.flips) for part in parts] == [
        ("1-2", 0.0, 1, 0),
        ("3-3", 1.0, 2, 2),
    ]


def test_windows_of_one_text_are_one_text():
    answers = pair_ids([0, 1, 2], [0, 1, 2], [0, 1, 2], row_ids=[17, 4, 17])

    assert answers.num_texts == 2
    assert answers.text_of.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("parts", "worst"),
    [
        ([("a", 0.0, 0), ("b", 0.0, 0)], None),
        ([], None),
        ([("a", 0.0, 0), ("b", -0.1, 2)], "b"),
        ([("a", 0.1, 1), ("b", 0.2, 1)], "b"),
        ([("a", 0.1, 1), ("b", 0.1, 3)], "b"),
    ],
)
def test_the_worst_part_loses_most_and_then_flips_most(parts, worst):
    found = worst_part(
        [PartDrop(name=name, drop=drop, rows=9, flips=flips) for name, drop, flips in parts]
    )

    assert (found.name if found else None) == worst


def test_logits_of_other_rows_than_the_labels_are_refused():
    with pytest.raises(ValueError, match="of the same rows: 1, 2"):
        pair_answers(
            ([np.zeros(3)], [np.zeros(3)]),
            [np.array([0]), np.array([1])],
            task=Task.SEQUENCE,
            num_labels=3,
            row_ids=np.arange(2),
        )
