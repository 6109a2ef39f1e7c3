"""Counts what a bundle's manifest says of the texts it was made with, for drift of live ones."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.batching import pad_rows
from pipeline.contract.label_sets import given_labels, label_scores
from pipeline.contract.profile import (
    NO_LABEL,
    NUM_CONFIDENCE_CLASSES,
    TrainingProfile,
    confidence_class,
    count_lengths,
)
from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.export.figures import ScoreSettings
from pipeline.export.onnx_session import LogitsFunction
from pipeline.quality import softmax

MOST_PROFILE_ROWS = 2_000
"""Chosen: shares of ten classes are known to within 1.5 points then."""

_Logits = NDArray[np.float32]


def measure_profile(
    run: LogitsFunction,
    split: ShardSplit,
    settings: ScoreSettings,
    *,
    edges: Sequence[int],
    unknown_token_id: int | None,
) -> TrainingProfile:
    """Return the profile of at most 2,000 rows, evenly spread over the lengths.

    Args:
        run: the model that serving loads by default.
        split: texts that the model did not learn, not empty.
        settings: task, labels, padding and the rows of a run.
        edges: greatest lengths of the classes of length.
        unknown_token_id: of the tokenizer; None: it has none.
    """
    places = _spread(split)
    given: Counter[str] = Counter()
    confidence = [0] * NUM_CONFIDENCE_CLASSES
    num_unknown = 0
    for place, logits in _run_rows(run, split, places, settings):
        num_unknown += int((split.input_ids(place) == unknown_token_id).sum())
        for label, score in _given(logits, split.labels(place), settings):
            given[label] += 1
            if label != NO_LABEL:
                confidence[confidence_class(score)] += 1
    lengths = [int(split.lengths[place]) for place in places]
    return TrainingProfile(
        num_texts=len(places),
        length_counts=count_lengths(lengths, edges),
        num_tokens=sum(lengths),
        num_unknown_tokens=num_unknown,
        confidence_counts=tuple(confidence),
        label_counts=dict(sorted(given.items())),
    )


def _spread(split: ShardSplit) -> list[int]:
    order = np.argsort(split.lengths, kind="stable")
    chosen = np.linspace(0, len(order) - 1, num=min(MOST_PROFILE_ROWS, len(order)), dtype=np.int64)
    return [int(order[place]) for place in chosen]


def _run_rows(
    run: LogitsFunction, split: ShardSplit, places: Sequence[int], settings: ScoreSettings
) -> Iterator[tuple[int, _Logits]]:
    for start in range(0, len(places), settings.batch_rows):
        batch = places[start : start + settings.batch_rows]
        rows = [split.input_ids(place) for place in batch]
        logits = run(*pad_rows(rows, pad_value=settings.pad_token_id))
        yield from zip(batch, logits, strict=True)


def _given(
    logits: _Logits, labels: NDArray[np.int32], settings: ScoreSettings
) -> list[tuple[str, float]]:
    """Return the labels that a text, or each of its words, gets, with their scores."""
    if settings.task is Task.MULTI_LABEL:
        scores = label_scores(logits)
        found = np.flatnonzero(given_labels(scores)).tolist()
        return [(settings.labels[label], float(scores[label])) for label in found] or [
            (NO_LABEL, 0.0)
        ]
    if settings.task is Task.TOKEN:
        # The first token of a word, which alone is labelled, speaks for it.
        probabilities = softmax(logits[: len(labels)])[labels != IGNORED_LABEL]
    else:
        probabilities = softmax(logits[None, :])
    best = probabilities.argmax(axis=-1)
    return [
        (settings.labels[label], float(row[label]))
        for label, row in zip(best.tolist(), probabilities, strict=True)
    ]
