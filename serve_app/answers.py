"""Logits to answers: probabilities, the label or labels of a text, the labels of its words."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.label_sets import given_labels, label_scores
from serve_app.encoding import MULTI_LABEL_TASK, TOKEN_TASK, EncodedRow
from serve_app.schemas import (
    AnyAnswer,
    LabelAnswer,
    MultiLabelAnswer,
    SequenceAnswer,
    TokenAnswer,
    WordAnswer,
)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return probabilities over the last axis, in the shape of the logits."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    exponents = np.exp(shifted)
    return np.asarray(exponents / exponents.sum(axis=-1, keepdims=True), dtype=np.float64)


def build_answer(
    row: EncodedRow,
    logits: NDArray[np.float32],
    *,
    task: str,
    labels: Sequence[str],
    with_scores: bool = False,
) -> AnyAnswer:
    """Return the answer to one text.

    Args:
        row: the text as it was encoded.
        logits: ``float32 [num_labels]``, or ``[seq, num_labels]`` for the token task.
        task: the bundle's task.
        labels: label names by their index on the last axis.
        with_scores: name the score of every label (not for the token task).
    """
    if task == MULTI_LABEL_TASK:
        return _give_labels(row, label_scores(logits), labels, with_scores=with_scores)
    probabilities = softmax(logits)
    if task == TOKEN_TASK:
        return TokenAnswer(
            words=_label_words(row, probabilities, labels),
            lane=row.lane,
            num_tokens=row.num_tokens,
            is_truncated=row.encoded.is_truncated,
        )
    best = int(probabilities.argmax())
    scores = dict(zip(labels, probabilities.tolist(), strict=True)) if with_scores else None
    return SequenceAnswer(
        label=labels[best],
        score=float(probabilities[best]),
        scores=scores,
        lane=row.lane,
        num_tokens=row.num_tokens,
        is_truncated=row.encoded.is_truncated,
    )


def _give_labels(
    row: EncodedRow, scores: NDArray[np.float64], labels: Sequence[str], *, with_scores: bool
) -> MultiLabelAnswer:
    by_score = np.argsort(-scores, kind="stable").tolist()
    is_given = given_labels(scores)
    return MultiLabelAnswer(
        labels=[
            LabelAnswer(label=labels[index], score=float(scores[index]))
            for index in by_score
            if is_given[index]
        ],
        scores=dict(zip(labels, scores.tolist(), strict=True)) if with_scores else None,
        lane=row.lane,
        num_tokens=row.num_tokens,
        is_truncated=row.encoded.is_truncated,
    )


def _label_words(
    row: EncodedRow, probabilities: NDArray[np.float64], labels: Sequence[str]
) -> list[WordAnswer]:
    # As in training, the first token of a word speaks for it.
    first_tokens: dict[int, int] = {}
    for position, word in enumerate(row.encoded.word_ids.tolist()):
        if word >= 0:
            first_tokens.setdefault(word, position)
    answers = []
    for index, word in enumerate(row.words):
        label, score = None, None
        if index in first_tokens:
            of_word = probabilities[first_tokens[index]]
            best = int(of_word.argmax())
            label, score = labels[best], float(of_word[best])
        answers.append(WordAnswer(word=word, label=label, score=score))
    return answers
