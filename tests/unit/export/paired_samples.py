"""Answers of two models to the same texts, built from label ids."""

import numpy as np

from pipeline.config import Task
from pipeline.export.paired_answers import PairedAnswers, pair_answers

NUM_LABELS = 3


def logits_for(ids, num_labels=NUM_LABELS):
    """Return float32 ``[..., num_labels]`` whose largest entry is each id's."""
    return np.eye(num_labels, dtype=np.float32)[np.asarray(ids, dtype=int)]


def pair_ids(true, first, second, *, num_labels=NUM_LABELS, row_ids=None) -> PairedAnswers:
    """Return the answers of two models that label whole texts; all given as ids by row."""
    return pair_answers(
        (list(logits_for(first, num_labels)), list(logits_for(second, num_labels))),
        [np.array([label], dtype=np.int32) for label in true],
        task=Task.SEQUENCE,
        num_labels=num_labels,
        row_ids=np.arange(len(true)) if row_ids is None else np.array(row_ids),
    )


def swap(answers: PairedAnswers) -> PairedAnswers:
    return PairedAnswers(
        true=answers.true,
        first=answers.second,
        second=answers.first,
        row_of=answers.row_of,
        text_of=answers.text_of,
        num_texts=answers.num_texts,
    )


def random_logits(task: Task, *, rows: int, seed: int):
    """Return labels and the logits of two models that mostly agree, by row."""
    rng = np.random.default_rng(seed)
    labels, first, second = [], [], []
    for row in range(rows):
        shape: tuple[int, ...] = (NUM_LABELS,)
        label = rng.integers(0, NUM_LABELS, 1)
        if task is Task.TOKEN:
            words = 2 + row % 3
            shape = (words, NUM_LABELS)
            # The first position bears no label, and one text bears none at all.
            label = np.where(np.arange(words) == 0, -100, rng.integers(0, NUM_LABELS, words))
            label = np.full(words, -100) if row == 1 else label
        if task is Task.MULTI_LABEL:
            label = np.flatnonzero(rng.random(NUM_LABELS) < 0.5)
        logits = rng.normal(size=shape).astype(np.float32)
        labels.append(label.astype(np.int32))
        first.append(logits)
        second.append((logits + 0.7 * rng.normal(size=shape)).astype(np.float32))
    return labels, first, second
