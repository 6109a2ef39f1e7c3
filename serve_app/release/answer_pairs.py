"""Two versions' answers to one text, compared: labels, scores, and how far probabilities moved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.label_sets import given_labels, label_scores
from serve_app.answers import softmax
from serve_app.encoding import MULTI_LABEL_TASK, TOKEN_TASK, EncodedRow
from serve_app.release.live_split import LoadedVersion
from serve_app.release.report import Comparison
from serve_app.release.shadow import AnsweredText, ShadowPair

NO_LABEL = "(none)"
"""Stands for a text that a multi-label model gave no label, and a word that was cut off."""
_Scores = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What a version said about one thing: a text, or a word of it."""

    label: str
    score: float
    scores: _Scores


def compare_answers(
    pair: ShadowPair,
    *,
    stable: LoadedVersion,
    candidate: LoadedVersion,
    is_candidate: bool,
    text: str | None = None,
) -> Comparison | None:
    """Return what the two versions made of one text; None where only the candidate has an answer.

    Args:
        pair: the user's answer and the other version's.
        stable: whose one answer is.
        candidate: whose the other is.
        is_candidate: whether the user's is the candidate's.
        text: as it came, where texts may be kept.
    """
    of_stable, of_candidate = (pair.other, pair.own) if is_candidate else (pair.own, pair.other)
    if of_stable is None:
        return None
    told_stable = _tell(of_stable, stable)
    told_candidate = None if of_candidate is None else _tell(of_candidate, candidate)
    shift, at = _largest_shift(told_stable, told_candidate or [])
    first = told_stable[at] if told_stable else _Told(label=NO_LABEL, score=0.0, scores={})
    second = told_candidate[at] if told_candidate else None
    return Comparison(
        request_id=pair.request_id,
        lane=of_stable.row.lane,
        num_tokens=of_stable.row.num_tokens,
        stable_label=first.label,
        candidate_label=second.label if second else "",
        stable_score=first.score,
        candidate_score=second.score if second else 0.0,
        shift=shift,
        stable_ms=of_stable.answer.session_ms,
        candidate_ms=of_candidate.answer.session_ms if of_candidate else 0.0,
        candidate_failed=told_candidate is None,
        text=text,
    )


def _largest_shift(stable: Sequence[_Told], candidate: Sequence[_Told]) -> tuple[float, int]:
    """Return the largest shift and the place to show: the first other label, else the first."""
    shift, at = 0.0, None
    for place, (one, other) in enumerate(zip(stable, candidate, strict=False)):
        known = one.scores.keys() & other.scores.keys()
        shift = max(shift, *(abs(one.scores[name] - other.scores[name]) for name in known), 0.0)
        if at is None and one.label != other.label:
            at = place
    return shift, at or 0


def _tell(answered: AnsweredText, version: LoadedVersion) -> list[_Told]:
    manifest = version.service.served.bundle.manifest
    logits = np.asarray(answered.answer.outcome)
    if manifest.task == MULTI_LABEL_TASK:
        return [_tell_labels(label_scores(logits), manifest.labels)]
    probabilities = softmax(logits)
    if manifest.task == TOKEN_TASK:
        tokens = _first_tokens(answered.row)
        return [_tell_best(probabilities[token], manifest.labels) for token in tokens]
    return [_tell_best(probabilities, manifest.labels)]


def _tell_best(probabilities: NDArray[np.float64], labels: Sequence[str]) -> _Told:
    best = int(probabilities.argmax())
    scores = dict(zip(labels, probabilities.tolist(), strict=True))
    return _Told(label=labels[best], score=scores[labels[best]], scores=scores)


def _tell_labels(probabilities: NDArray[np.float64], labels: Sequence[str]) -> _Told:
    given = [labels[index] for index in np.flatnonzero(given_labels(probabilities)).tolist()]
    scores = dict(zip(labels, probabilities.tolist(), strict=True))
    return _Told(
        label=" + ".join(sorted(given)) or NO_LABEL,
        score=float(probabilities.max()),
        scores=scores,
    )


def _first_tokens(row: EncodedRow) -> list[int]:
    """Return the place of each word's first token, which speaks for the word."""
    words = np.full(0, -1) if row.word_ids is None else row.word_ids
    ids, places = np.unique(words, return_index=True)
    return [int(place) for word, place in zip(ids, places, strict=True) if word >= 0]
