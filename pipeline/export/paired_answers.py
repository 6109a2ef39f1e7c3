"""What two models answer to the same texts: who is right, what flipped, and where; pure numpy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.batching import IntArray, bucket_of
from pipeline.contract.label_sets import BoolArray, given_labels
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.multi_label_quality import join_rows
from pipeline.quality import FloatArray, join_labelled, precision_recall_f1


@dataclass(frozen=True, kw_only=True)
class PairedAnswers:
    """The labels that two models gave to the same decisions, as flags.

    A decision is a row, or a labelled word of a row. One flag of a decision is set, or any
    number for multi-label texts, so that all tasks are counted alike.
    """

    true: BoolArray
    """``[decisions, num_labels]``."""
    first: BoolArray
    """Given by the model that is the measure; ``[decisions, num_labels]``."""
    second: BoolArray
    """Given by the model that is judged; ``[decisions, num_labels]``."""
    row_of: IntArray
    """Which row of the split each decision is from, ``int64 [decisions]``."""
    text_of: IntArray
    """Which text, 0 to ``num_texts`` - 1, each decision is from, ``int64 [decisions]``."""
    num_texts: int

    @property
    def is_flip(self) -> BoolArray:
        """Whether the two answers differ in any label, ``bool [decisions]``."""
        return np.asarray((self.first != self.second).any(axis=1), dtype=np.bool_)

    @property
    def is_right(self) -> tuple[BoolArray, BoolArray]:
        """Whether each answer of the first and of the second model is right as a whole."""
        first, second = (
            np.asarray((self.true == given).all(axis=1), dtype=np.bool_)
            for given in (self.first, self.second)
        )
        return first, second


@dataclass(frozen=True, kw_only=True)
class PartDrop:
    """What one class or one length bucket loses."""

    name: str
    drop: float
    """F1 that a class loses, accuracy that a bucket loses; negative if the second is better."""
    rows: int
    """Decisions that bear the class or lie in the bucket."""
    flips: int
    """Decisions in which only one of the models gave the class; in a bucket, that differ."""

    def as_figures(self) -> dict[str, object]:
        """Return the part as it stands in the bundle's manifest, its name left out."""
        return {"drop": self.drop, "rows": self.rows, "flips": self.flips}


def pair_answers(
    logits: tuple[Sequence[FloatArray], Sequence[FloatArray]],
    labels: Sequence[NDArray[np.int32]],
    *,
    task: Task,
    num_labels: int,
    row_ids: IntArray,
) -> PairedAnswers:
    """Return both models' answers side by side.

    Args:
        logits: of the first and the second model, by row as
            :func:`pipeline.quality.predict_split` gives them.
        labels: of the rows, as :func:`pipeline.quality.labels_of` gives them.
        task: decides what an answer is.
        num_labels: labels of the models.
        row_ids: which text every row is (windows of a text share it), ``int64 [rows]``.

    Raises:
        ValueError: logits and labels are not of the same rows, or none is labelled.
    """
    texts, text_of_row = np.unique(np.asarray(row_ids, dtype=np.int64), return_inverse=True)
    row_of = np.arange(len(labels), dtype=np.int64)
    if task is Task.MULTI_LABEL:
        (scores, true), (others, _) = (join_rows(part, labels, num_labels) for part in logits)
        first, second = given_labels(scores), given_labels(others)
    else:
        (scores_of_first, ids), (scores_of_second, _) = (
            join_labelled(part, labels) for part in logits
        )
        flags = np.eye(num_labels, dtype=np.bool_)
        true = flags[ids]
        first, second = (
            flags[scores_of_first.argmax(axis=1)],
            flags[scores_of_second.argmax(axis=1)],
        )
        row_of = np.repeat(row_of, [int((row != IGNORED_LABEL).sum()) for row in labels])
    return PairedAnswers(
        true=true,
        first=first,
        second=second,
        row_of=row_of,
        text_of=text_of_row.astype(np.int64)[row_of],
        num_texts=len(texts),
    )


def drops_by_class(answers: PairedAnswers, names: Sequence[str]) -> list[PartDrop]:
    """Return what every class loses in F1; the mean of these is the drop of macro F1.

    Classes that are neither borne nor given anywhere are left out, as macro F1 leaves them.
    """
    support = answers.true.sum(axis=0)
    flips = (answers.first != answers.second).sum(axis=0)
    given = [part.sum(axis=0) for part in (answers.first, answers.second)]
    hits = [(answers.true & part).sum(axis=0) for part in (answers.first, answers.second)]
    parts = []
    for label, name in enumerate(names):
        if not support[label] + given[0][label] + given[1][label]:
            continue
        f1 = [
            precision_recall_f1(int(hits[m][label]), int(given[m][label]), int(support[label]))[
                "f1"
            ]
            for m in (0, 1)
        ]
        parts.append(
            PartDrop(
                name=name,
                drop=round(f1[0] - f1[1], 9),
                rows=int(support[label]),
                flips=int(flips[label]),
            )
        )
    return parts


def drops_by_bucket(
    answers: PairedAnswers, *, lengths: IntArray, bucket_edges: Sequence[int]
) -> list[PartDrop]:
    """Return what every length bucket that has decisions loses in accuracy.

    Args:
        answers: of both models.
        lengths: tokens of every row of the split, ``int64 [rows]``.
        bucket_edges: greatest length of every bucket, ascending.

    A bucket is named by its limits in tokens, both inclusive, such as ``17-32``.
    """
    edges = np.asarray(bucket_edges, dtype=np.int64)
    buckets = bucket_of(np.asarray(lengths, dtype=np.int64), edges)[answers.row_of]
    first, second = answers.is_right
    flips = answers.is_flip
    parts = []
    for bucket, edge in enumerate(edges.tolist()):
        inside = buckets == bucket
        if inside.any():
            low = int(edges[bucket - 1]) + 1 if bucket else 1
            parts.append(
                PartDrop(
                    name=f"{low}-{edge}",
                    drop=round(float(first[inside].mean() - second[inside].mean()), 9),
                    rows=int(inside.sum()),
                    flips=int(flips[inside].sum()),
                )
            )
    return parts


def worst_part(parts: Sequence[PartDrop]) -> PartDrop | None:
    """Return the part with the largest drop, of equals the one with most flips.

    None if nothing flipped anywhere: then no part is worse than another.
    """
    flipped = [part for part in parts if part.flips]
    return max(flipped, key=lambda part: (part.drop, part.flips), default=None)
