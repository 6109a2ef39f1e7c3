"""Logits to answers: probabilities, the label or labels of a text, the labels of its words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.label_sets import given_labels, label_scores
from serve_app.encoding import MULTI_LABEL_TASK, TOKEN_TASK, EncodedRow
from serve_app.schemas import (
    AnyAnswer,
    LabelAnswer,
    MultiLabelAnswer,
    SequenceAnswer,
    Timings,
    TokenAnswer,
    WordAnswer,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerDetail:
    """What an answer says beside its label; none of it for the token task but the timings."""

    with_scores: bool = False
    """Name the score of every label."""
    top_k: int | None = None
    """Name so many labels with the highest scores."""
    timings: Timings | None = None


NO_DETAIL = AnswerDetail()


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
    detail: AnswerDetail = NO_DETAIL,
) -> AnyAnswer:
    """Return the answer to one text.

    Args:
        row: the text as it was encoded.
        logits: ``float32 [num_labels]``, or ``[seq, num_labels]`` for the token task.
        task: the bundle's task.
        labels: label names by their index on the last axis.
        detail: what to say beside the label.
    """
    if task == MULTI_LABEL_TASK:
        return _give_labels(row, label_scores(logits), labels, detail)
    probabilities = softmax(logits)
    if task == TOKEN_TASK:
        return TokenAnswer(
            words=_label_words(row, probabilities, labels),
            lane=row.lane,
            num_tokens=row.num_tokens,
            is_truncated=row.is_truncated,
            timings=detail.timings,
        )
    best = int(probabilities.argmax())
    return SequenceAnswer(
        label=labels[best],
        score=float(probabilities[best]),
        scores=_all_scores(probabilities, labels) if detail.with_scores else None,
        top=_highest(probabilities, labels, detail.top_k) if detail.top_k else None,
        lane=row.lane,
        num_tokens=row.num_tokens,
        is_truncated=row.is_truncated,
        timings=detail.timings,
    )


def _all_scores(scores: NDArray[np.float64], labels: Sequence[str]) -> dict[str, float]:
    return dict(zip(labels, scores.tolist(), strict=True))


def _highest(
    scores: NDArray[np.float64], labels: Sequence[str], num_labels: int
) -> list[LabelAnswer]:
    by_score = np.argsort(-scores, kind="stable")[:num_labels].tolist()
    return [LabelAnswer(label=labels[index], score=float(scores[index])) for index in by_score]


def _give_labels(
    row: EncodedRow, scores: NDArray[np.float64], labels: Sequence[str], detail: AnswerDetail
) -> MultiLabelAnswer:
    # Those given are the highest, since one threshold holds for all.
    num_given = int(given_labels(scores).sum())
    return MultiLabelAnswer(
        labels=_highest(scores, labels, num_given),
        scores=_all_scores(scores, labels) if detail.with_scores else None,
        top=_highest(scores, labels, detail.top_k) if detail.top_k else None,
        lane=row.lane,
        num_tokens=row.num_tokens,
        is_truncated=row.is_truncated,
        timings=detail.timings,
    )


def _label_words(
    row: EncodedRow, probabilities: NDArray[np.float64], labels: Sequence[str]
) -> list[WordAnswer]:
    # As in training, the first token of a word speaks for it.
    first_tokens: dict[int, int] = {}
    for position, word in enumerate([] if row.word_ids is None else row.word_ids.tolist()):
        if word >= 0:
            first_tokens.setdefault(word, position)
    answers = []
    for index, span in enumerate(row.words):
        label, score = None, None
        if index in first_tokens:
            of_word = probabilities[first_tokens[index]]
            best = int(of_word.argmax())
            label, score = labels[best], float(of_word[best])
        answers.append(
            WordAnswer(word=span.word, label=label, score=score, start=span.start, end=span.end)
        )
    return answers
