"""Counts over the texts that each version answers, to be held against its training profile."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.contract.profile import (
    NO_LABEL,
    NUM_CONFIDENCE_CLASSES,
    confidence_class,
    length_class,
    length_edges,
)
from pipeline.contract.tokenization import TextEncoder
from serve_app.encoding import EncodedRow
from serve_app.release.report import LiveProfile
from serve_app.schemas import MultiLabelAnswer, SequenceAnswer, TokenAnswer
from serve_app.served import Served
from serve_app.service import Outcome, Prediction

MOST_TEXTS = 200
"""Texts between two reports of which counts are taken; chosen: under 1 % of a core, and drift
needs thousands over an hour, not each one."""


@dataclass(slots=True)
class _Counts:
    edges: Sequence[int]
    lengths: list[int]
    num_tokens: int = 0
    num_unknown_tokens: int = 0
    confidence: list[int] = field(default_factory=lambda: [0] * NUM_CONFIDENCE_CLASSES)
    labels: Counter[str] = field(default_factory=Counter)


class ProfileLog:
    """Counts between two reports; used from one event loop."""

    def __init__(self) -> None:
        """Begin empty."""
        self._num_left = MOST_TEXTS
        self._counts: dict[str, _Counts] = {}

    def add(
        self, prediction: Prediction, *, version: str, served: Served, encoder: TextEncoder
    ) -> None:
        """Count the texts of a request that were answered, while there is room.

        Args:
            prediction: what became of them.
            version: the one that answered.
            served: its bundle.
            encoder: its tokenizer.
        """
        for row, outcome in zip(prediction.rows, prediction.outcomes, strict=True):
            if self._num_left <= 0:
                return
            if not isinstance(row, EncodedRow) or isinstance(outcome, Exception):
                continue
            self._num_left -= 1
            counts = self._counts.get(version)
            if counts is None:
                edges = length_edges(served.bundle.manifest.seq_len_percentiles)
                counts = _Counts(edges=edges, lengths=[0] * (len(edges) + 1))
                self._counts[version] = counts
            unknown = encoder.unknown_token_id
            counts.lengths[length_class(row.num_tokens, counts.edges)] += 1
            counts.num_tokens += row.num_tokens
            counts.num_unknown_tokens += int((row.input_ids == unknown).sum())
            for label, score in _given(outcome):
                counts.labels[label] += 1
                if label != NO_LABEL:
                    counts.confidence[confidence_class(score)] += 1

    def take(self) -> list[LiveProfile]:
        """Return the counts since the last time, and begin anew."""
        profiles = [
            LiveProfile(
                version=version,
                length_counts=tuple(counts.lengths),
                num_tokens=counts.num_tokens,
                num_unknown_tokens=counts.num_unknown_tokens,
                confidence_counts=tuple(counts.confidence),
                label_counts=dict(counts.labels),
            )
            for version, counts in self._counts.items()
        ]
        self._num_left, self._counts = MOST_TEXTS, {}
        return profiles


def _given(answer: Outcome) -> Iterator[tuple[str, float]]:
    """Return the labels that a text or each of its words got, as the training profile has them."""
    if isinstance(answer, SequenceAnswer):
        yield answer.label, answer.score
    elif isinstance(answer, MultiLabelAnswer):
        yield from ((one.label, one.score) for one in answer.labels)
        if not answer.labels:
            yield NO_LABEL, 0.0
    elif isinstance(answer, TokenAnswer):
        for word in answer.words:
            if word.label is not None and word.score is not None:
                yield word.label, word.score
