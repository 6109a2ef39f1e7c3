"""Logits to answers."""

import math

import numpy as np
import pytest

from pipeline.contract.word_spans import WordSpan
from serve_app.answers import AnswerDetail, build_answer, softmax
from serve_app.encoding import EncodedRow


def encoded_row(word_ids, words=(), *, is_truncated=False):
    return EncodedRow(
        input_ids=np.zeros(len(word_ids), dtype=np.int32),
        is_truncated=is_truncated,
        lane="short",
        words=tuple(WordSpan(word=word, start=0, end=len(word)) for word in words),
        word_ids=np.array(word_ids, dtype=np.int32),
    )


def test_softmax_sums_to_one_and_survives_large_logits():
    probabilities = softmax(np.array([[1000.0, 0.0], [0.0, math.log(3)]], dtype=np.float32))

    np.testing.assert_allclose(probabilities, [[1.0, 0.0], [0.25, 0.75]], atol=1e-7)


def test_sequence_answer_has_label_score_and_facts_of_the_text():
    logits = np.array([0.0, math.log(3)], dtype=np.float32)

    answer = build_answer(
        encoded_row([-1, 0, -1], is_truncated=True),
        logits,
        task="sequence_classification",
        labels=("negative", "positive"),
        detail=AnswerDetail(with_scores=True),
    )

    assert (answer.label, answer.lane, answer.num_tokens) == ("positive", "short", 3)
    assert answer.is_truncated
    assert answer.score == pytest.approx(0.75)
    assert answer.scores == pytest.approx({"negative": 0.25, "positive": 0.75})


def test_multi_label_answer_has_the_labels_of_at_least_one_half_highest_first():
    logits = np.array([0.0, -math.log(3), math.log(3)], dtype=np.float32)

    answer = build_answer(
        encoded_row([-1, 0, -1], is_truncated=True),
        logits,
        task="multi_label_classification",
        labels=("sad", "dull", "kind"),
        detail=AnswerDetail(with_scores=True),
    )

    assert [given.label for given in answer.labels] == ["kind", "sad"]
    assert [given.score for given in answer.labels] == pytest.approx([0.75, 0.5])
    assert answer.scores == pytest.approx({"sad": 0.5, "dull": 0.25, "kind": 0.75})
    assert (answer.lane, answer.num_tokens, answer.is_truncated) == ("short", 3, True)


def test_multi_label_answer_may_have_no_label_and_tells_scores_only_if_asked():
    answer = build_answer(
        encoded_row([-1, 0, -1]),
        np.array([-3.0, -4.0], dtype=np.float32),
        task="multi_label_classification",
        labels=("sad", "dull"),
    )

    assert (answer.labels, answer.scores) == ([], None)


def test_a_word_takes_the_label_of_its_first_token():
    logits = np.zeros((5, 2), dtype=np.float32)
    logits[1] = [0.0, math.log(3)]
    logits[2] = [9.0, 0.0]

    answer = build_answer(
        encoded_row([-1, 0, 0, 1, -1], ["Annas", "film"]),
        logits,
        task="token_classification",
        labels=("O", "PER"),
    )

    assert [(word.word, word.label) for word in answer.words] == [("Annas", "PER"), ("film", "O")]
    assert answer.words[0].score == pytest.approx(0.75)


def test_words_that_were_cut_off_have_no_label():
    answer = build_answer(
        encoded_row([-1, 0, -1], ["Anna", "lives"], is_truncated=True),
        np.zeros((3, 2), dtype=np.float32),
        task="token_classification",
        labels=("O", "PER"),
    )

    assert (answer.words[1].word, answer.words[1].label, answer.words[1].score) == (
        "lives",
        None,
        None,
    )


@pytest.mark.parametrize("task", ["sequence_classification", "multi_label_classification"])
def test_top_names_labels_by_falling_score_and_ties_by_their_order(task):
    answer = build_answer(
        encoded_row([-1, 0, -1]),
        np.array([1.0, 3.0, 1.0, 2.0], dtype=np.float32),
        task=task,
        labels=("a", "b", "c", "d"),
        detail=AnswerDetail(top_k=3),
    )

    assert [given.label for given in answer.top] == ["b", "d", "a"]
    assert [given.score for given in answer.top] == sorted(
        (given.score for given in answer.top), reverse=True
    )
