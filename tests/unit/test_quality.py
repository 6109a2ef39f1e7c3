import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.errors import InferenceError
from pipeline.quality import (
    accuracy,
    class_scores,
    confusion_matrix,
    entities_of,
    entity_f1,
    is_bio,
    join_labelled,
    macro_f1,
    mean_f1,
    paired_p_value,
    predict_split,
    softmax,
    tags_of,
    wilson_interval,
)

IGNORED = -100
TAGS = st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), max_size=8)


class FakeSplit:
    """Rows of given ids, as ShardSplit gives them."""

    def __init__(self, rows):
        self.rows = [np.array(row, dtype=np.int32) for row in rows]
        self.lengths = np.array([len(row) for row in rows], dtype=np.int64)
        self.row_ids = np.arange(100, 100 + len(rows), dtype=np.int64)

    def __len__(self):
        return len(self.rows)

    def input_ids(self, index):
        return self.rows[index]


class FakeModel:
    """Logits are a known function of the ids; remembers the shapes it was given."""

    def __init__(self):
        self.shapes = []

    def sequence(self, input_ids, mask):
        self.shapes.append(input_ids.shape)
        total = (input_ids * mask).sum(axis=1)
        return np.stack([total, -total], axis=1).astype(np.float32)

    def token(self, input_ids, mask):
        self.shapes.append(input_ids.shape)
        return np.stack([input_ids, -input_ids], axis=-1).astype(np.float32)


def logits_for(predicted, num_labels):
    return [np.eye(num_labels, dtype=np.float32)[label] for label in predicted]


def labels_for(values):
    return [np.array([value], dtype=np.int32) for value in values]


def test_predict_split_gives_logits_in_row_order_and_runs_similar_lengths_together():
    model = FakeModel()
    split = FakeSplit([[5, 6, 7], [1], [2, 2, 2, 2], [3, 3]])

    logits = predict_split(
        split, model.sequence, batch_rows=2, pad_token_id=0, task="sequence_classification"
    )

    assert [row.tolist() for row in logits] == [[18, -18], [1, -1], [8, -8], [6, -6]]
    assert model.shapes == [(2, 2), (2, 4)]


def test_predict_split_cuts_the_padding_off_token_logits():
    split = FakeSplit([[5, 6, 7], [1]])

    logits = predict_split(
        split, FakeModel().token, batch_rows=8, pad_token_id=0, task="token_classification"
    )

    assert [row[:, 0].tolist() for row in logits] == [[5, 6, 7], [1]]


@pytest.mark.parametrize(
    "answer",
    [
        lambda ids, mask: np.zeros((len(ids) + 1, 2), dtype=np.float32),
        lambda ids, mask: np.zeros((*ids.shape, 2), dtype=np.float32),
    ],
    ids=["one row too many", "a token task's shape"],
)
def test_predict_split_refuses_logits_that_are_misshapen(answer):
    split = FakeSplit([[5, 6], [1]])

    with pytest.raises(InferenceError, match=r"must be of shape \(2,\)"):
        predict_split(split, answer, batch_rows=8, pad_token_id=0, task="sequence_classification")


def test_predict_split_names_the_row_whose_logits_are_not_finite():
    split = FakeSplit([[5, 6], [1], [7, 8, 9]])

    def overflow(ids, mask):
        return np.where(ids == 5, np.inf, ids.astype(np.float32))[..., None]

    with pytest.raises(InferenceError, match=r"row 100: .*not finite.*train\.base_lr"):
        predict_split(split, overflow, batch_rows=8, pad_token_id=0, task="token_classification")


def test_accuracy_and_macro_f1_of_a_sequence_task_worked_by_hand():
    logits, labels = logits_for([0, 0, 1, 1], 2), labels_for([0, 1, 1, 1])

    # Class 0: precision 1/2, recall 1, F1 2/3. Class 1: precision 1, recall 2/3, F1 4/5.
    assert accuracy(logits, labels) == 0.75
    assert macro_f1(logits, labels, 2) == pytest.approx((2 / 3 + 4 / 5) / 2)


def test_accuracy_of_a_token_task_counts_only_labelled_tokens():
    logits = [np.array([[9, 0], [0, 9], [9, 0]], dtype=np.float32)]
    labels = [np.array([IGNORED, 1, 1], dtype=np.int32)]

    assert accuracy(logits, labels) == 0.5


def test_join_labelled_refuses_rows_that_do_not_match():
    with pytest.raises(ValueError, match="same rows: 1, 2"):
        join_labelled(logits_for([0], 2), labels_for([0, 1]))
    with pytest.raises(ValueError, match="1 positions have logits, 2 have labels"):
        join_labelled(logits_for([0], 2), [np.array([0, 1], dtype=np.int32)])
    with pytest.raises(ValueError, match="no position bears a label"):
        join_labelled(logits_for([0], 2), labels_for([IGNORED]))


def test_confusion_matrix_has_true_labels_in_rows():
    matrix = confusion_matrix(np.array([0, 0, 2]), np.array([1, 0, 2]), 3)

    assert matrix.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_a_class_that_occurs_nowhere_does_not_pull_the_mean_f1_down():
    scores = class_scores(np.array([[4, 0, 0], [0, 3, 0], [0, 0, 0]]))

    assert [score.f1 for score in scores] == [1.0, 1.0, 0.0]
    assert mean_f1(scores) == 1.0


def test_a_class_that_was_never_predicted_counts_as_zero():
    scores = class_scores(np.array([[2, 0], [2, 0]]))

    assert scores[1].precision == scores[1].recall == scores[1].f1 == 0.0
    assert mean_f1(scores) == pytest.approx((2 * 0.5 * 1 / 1.5) / 2)


def test_softmax_of_large_logits_does_not_overflow():
    values = softmax(np.array([[1000.0, 1000.0], [-1000.0, 0.0]]))

    assert values.tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_wilson_interval_known_value_and_ends():
    # Brown, Cai, DasGupta's formula for 8 of 10, to four digits.
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(10, 10)[1] == pytest.approx(1.0)
    assert wilson_interval(0, 10)[0] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 1, 1.0), (0, 5, 2 / 32), (1, 9, 2 * 11 / 1024)],
)
def test_paired_p_value_is_the_two_sided_coin_test(first, second, expected):
    assert paired_p_value(first, second) == pytest.approx(expected)
    assert paired_p_value(second, first) == pytest.approx(expected)


def test_paired_p_value_of_very_many_rows_is_finite():
    assert 0.0 <= paired_p_value(10_000, 20_000) < 1e-300
    assert math.isfinite(paired_p_value(500_000, 500_010))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([], []),
        (["O", "O"], []),
        (["B-PER", "I-PER", "O", "B-LOC"], [("PER", 0, 1), ("LOC", 3, 3)]),
        (["I-PER", "I-PER"], [("PER", 0, 1)]),
        (["O", "I-PER", "O"], [("PER", 1, 1)]),
        (["B-PER", "B-PER"], [("PER", 0, 0), ("PER", 1, 1)]),
        (["B-PER", "I-LOC", "I-LOC"], [("PER", 0, 0), ("LOC", 1, 2)]),
        (["I-LOC", "I-PER", "B-PER"], [("LOC", 0, 0), ("PER", 1, 1), ("PER", 2, 2)]),
        (["B-PER", "O", "I-PER"], [("PER", 0, 0), ("PER", 2, 2)]),
        (["B-sub-type", "I-sub-type"], [("sub-type", 0, 1)]),
        (["O", "B-PER"], [("PER", 1, 1)]),
    ],
    ids=[
        "no words",
        "no entity",
        "plain",
        "inside without a begin",
        "inside without a begin, alone",
        "two begins touch",
        "inside of another type begins anew",
        "change of type twice",
        "a gap ends the entity",
        "type with a hyphen",
        "open at the end",
    ],
)
def test_entities_follow_the_conll_rules(tags, expected):
    assert entities_of(tags) == expected


def test_entity_f1_worked_by_hand():
    true = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "O"]]
    predicted = [["B-PER", "O", "O"], ["B-LOC", "O", "B-PER"]]

    scores = entity_f1(true, predicted)

    # One of three predicted and of two real entities is right; the short PER is wrong.
    assert scores["precision"] == pytest.approx(1 / 3)
    assert scores["recall"] == pytest.approx(1 / 2)
    assert scores["f1"] == pytest.approx(0.4)
    assert (scores["support"], scores["predicted"]) == (2, 3)
    assert scores["by_type"]["LOC"]["f1"] == 1.0
    assert scores["by_type"]["PER"] == {
        "precision": 0.0,
        "recall": 0.0,
        "f1": 0.0,
        "support": 1,
        "predicted": 2,
    }


def test_entity_f1_tells_the_same_span_of_two_sentences_apart():
    scores = entity_f1([["B-A"], ["O"]], [["O"], ["B-A"]])

    assert scores["f1"] == 0.0
    assert (scores["support"], scores["predicted"]) == (1, 1)


def test_entity_f1_without_any_entity_is_zero_and_refuses_other_sentences():
    assert entity_f1([["O"]], [["O"]])["f1"] == 0.0
    with pytest.raises(ValueError, match="shorter"):
        entity_f1([["O"], ["O"]], [["O"]])


@given(TAGS)
def test_a_sentence_against_itself_is_right_and_entities_do_not_overlap(tags):
    found = entities_of(tags)

    covered = [word for _, first, last in found for word in range(first, last + 1)]
    assert covered == [place for place, tag in enumerate(tags) if tag != "O"]
    assert entity_f1([tags], [tags])["f1"] == (1.0 if found else 0.0)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["O", "B-PER", "I-PER"], True),
        (["B-PER"], True),
        (["O"], False),
        (["negative", "positive"], False),
        (["B-", "O"], False),
        (["NOUN", "B-PER"], False),
    ],
)
def test_is_bio_needs_a_type_on_every_tag_but_o(labels, expected):
    assert is_bio(labels) is expected


def test_tags_of_leaves_out_the_tokens_without_a_label():
    logits = np.array([[9, 0], [0, 9], [0, 9]], dtype=np.float32)
    labels = np.array([IGNORED, 0, 1], dtype=np.int32)

    assert tags_of(logits, labels, ["O", "B-X"]) == (["O", "B-X"], ["B-X", "B-X"])
