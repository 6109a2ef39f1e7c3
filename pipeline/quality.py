"""How good predictions are: pure numpy, the same for torch, ONNX and INT8 models."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray, pad_rows
from pipeline.contract.errors import InferenceError
from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import IGNORED_LABEL

FloatArray = NDArray[np.float32]
Run = Callable[[IntArray, IntArray], FloatArray]
"""``input_ids, attention_mask`` (int64 ``[batch, seq]``) → float32 logits."""

_TOKEN_TASK = "token_classification"
_MULTI_LABEL_TASK = "multi_label_classification"
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class ClassScore:
    """One class against all others; shares are 0 where their denominator is 0."""

    precision: float
    recall: float
    f1: float
    support: int
    """Rows (or words) that bear the label."""
    predicted: int
    """Rows (or words) that were given the label."""


def predict_split(
    split: ShardSplit, run: Run, *, batch_rows: int, pad_token_id: int, task: str
) -> list[FloatArray]:
    """Return every row's logits in row order, rows of similar length run together.

    Float32 ``[num_labels]`` per row, or ``[seq, num_labels]`` for token classification.

    Raises:
        InferenceError: ``run`` gave logits that are not finite or of another shape.
    """
    found: list[FloatArray | None] = [None] * len(split)
    lengths = split.lengths
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch_rows):
        indices = order[start : start + batch_rows]
        rows = [split.input_ids(int(index)) for index in indices]
        input_ids, mask = pad_rows(rows, pad_value=pad_token_id)
        logits = np.asarray(run(input_ids, mask), dtype=np.float32)
        expected = input_ids.shape if task == _TOKEN_TASK else input_ids.shape[:1]
        if logits.shape[:-1] != expected:
            raise InferenceError(
                f"the model's logits must be of shape {expected} + (num_labels,)",
                value=logits.shape,
            )
        _demand_finite(logits, split, indices)
        for index, row in zip(indices, logits, strict=True):
            # A copy: a view would keep the whole padded batch alive.
            found[int(index)] = (row[: lengths[index]] if task == _TOKEN_TASK else row).copy()
    return [row for row in found if row is not None]


def _demand_finite(logits: FloatArray, split: ShardSplit, indices: IntArray) -> None:
    is_bad = ~np.isfinite(logits.reshape(len(logits), -1)).all(axis=1)
    if is_bad.any():
        row_id = int(split.row_ids[int(indices[int(is_bad.argmax())])])
        raise InferenceError(
            "the model gave logits that are not finite",
            place=f"row {row_id}",
            remedy="Numbers overflow in this model; train again with a lower train.base_lr or "
            "more train.weight_decay.",
        )


def accuracy_name(task: str) -> str:
    """Return what people call a task's ``accuracy``: multi-label texts are right as a whole."""
    return "exact match" if task == _MULTI_LABEL_TASK else "accuracy"


def labels_of(split: ShardSplit) -> list[NDArray[np.int32]]:
    """Return every row's labels in row order, each as :meth:`ShardSplit.labels` gives them."""
    return [split.labels(index) for index in range(len(split))]


def join_labelled(
    logits: Sequence[FloatArray], labels: Sequence[NDArray[np.int32]]
) -> tuple[FloatArray, IntArray]:
    """Return the logits ``[n, num_labels]`` and labels int64 ``[n]`` of all labelled positions.

    A position is a row, or a token of a row; those labelled -100 are left out.

    Raises:
        ValueError: logits and labels are not of the same rows, or none is labelled.
    """
    if not logits or len(logits) != len(labels):
        raise ValueError(f"need logits and labels of the same rows: {len(logits)}, {len(labels)}")
    num_labels = logits[0].shape[-1]
    joined = np.concatenate([row.reshape(-1, num_labels) for row in logits])
    true = np.concatenate([np.asarray(row, dtype=np.int64) for row in labels])
    if len(joined) != len(true):
        raise ValueError(f"{len(joined)} positions have logits, {len(true)} have labels")
    is_labelled = true != IGNORED_LABEL
    if not is_labelled.any():
        raise ValueError("no position bears a label")
    return joined[is_labelled], true[is_labelled]


def accuracy(logits: Sequence[FloatArray], labels: Sequence[NDArray[np.int32]]) -> float:
    """Return the share of labelled rows (or tokens) whose largest logit is the label's."""
    scores, true = join_labelled(logits, labels)
    return float(np.mean(scores.argmax(axis=-1) == true))


def macro_f1(
    logits: Sequence[FloatArray], labels: Sequence[NDArray[np.int32]], num_labels: int
) -> float:
    """Return :func:`mean_f1` of the labelled rows (or tokens)."""
    scores, true = join_labelled(logits, labels)
    return mean_f1(class_scores(confusion_matrix(true, scores.argmax(axis=-1), num_labels)))


def confusion_matrix(true: IntArray, predicted: IntArray, num_labels: int) -> IntArray:
    """Return counts, int64 ``[num_labels, num_labels]``: row = true label, column = predicted."""
    cells = np.asarray(true, dtype=np.int64) * num_labels + np.asarray(predicted, dtype=np.int64)
    counts = np.bincount(cells, minlength=num_labels * num_labels)
    return counts.reshape(num_labels, num_labels).astype(np.int64)


def class_scores(confusion: IntArray) -> list[ClassScore]:
    """Return precision, recall and F1 of every class of a :func:`confusion_matrix`."""
    hits = np.diag(confusion)
    support, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    return [
        ClassScore(
            **precision_recall_f1(int(hits[label]), int(predicted[label]), int(support[label])),
            support=int(support[label]),
            predicted=int(predicted[label]),
        )
        for label in range(len(confusion))
    ]


def mean_f1(scores: Sequence[ClassScore]) -> float:
    """Return the unweighted mean F1 of the classes that were true or predicted anywhere.

    A class that occurs in neither says nothing about the model and would pull the mean to
    0; scikit-learn's ``f1_score(average="macro")`` leaves it out as well.
    """
    values = [score.f1 for score in scores if score.support or score.predicted]
    return float(np.mean(values)) if values else 0.0


def softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return probabilities over the last axis, float64; large logits do not overflow."""
    shifted = np.asarray(logits, dtype=np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), dtype=np.float64)


def wilson_interval(hits: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of ``rows``, lower and upper end.

    Wilson 1927's score interval, which stays inside 0 to 1 and is sound for few rows
    (Brown, Cai, DasGupta 2001, "Interval Estimation for a Binomial Proportion", section 3).
    """
    share, square = hits / rows, _NORMAL_95**2
    centre = (share + square / (2 * rows)) / (1 + square / rows)
    spread = math.sqrt(share * (1 - share) / rows + square / (4 * rows * rows))
    half = _NORMAL_95 * spread / (1 + square / rows)
    return max(0.0, centre - half), min(1.0, centre + half)


def paired_p_value(only_first_right: int, only_second_right: int) -> float:
    """Return how likely so uneven a split of the disagreements is between equal models.

    McNemar's test in its exact two-sided form: of the rows that one of two models gets
    right and the other wrong, each is a fair coin if the models are equally good
    (Dietterich 1998, "Approximate Statistical Tests for Comparing Supervised
    Classification Learning Algorithms", section 3).
    """
    flips, fewer = only_first_right + only_second_right, min(only_first_right, only_second_right)
    heads = np.arange(1, fewer + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((flips - heads + 1) / heads))])
    log_tail = float(np.logaddexp.reduce(log_ways)) - flips * math.log(2)
    return min(1.0, 2 * math.exp(log_tail))


def is_bio(labels: Sequence[str]) -> bool:
    """Return whether these label names are BIO tags: ``O``, ``B-TYPE``, ``I-TYPE``."""
    spans = [name for name in labels if name != "O"]
    return bool(spans) and all(name[:2] in ("B-", "I-") and len(name) > 2 for name in spans)


def entities_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (type, first word, last word) of every entity in a sentence's BIO tags.

    The rules of the CoNLL-2000 shared task's ``conlleval`` (Tjong Kim Sang and Buchholz
    2000, https://aclanthology.org/W00-0726), which are those of seqeval's default mode: an
    ``I-`` that continues nothing of its own type begins an entity as a ``B-`` would. Under
    seqeval's ``mode="strict", scheme=IOB2`` such an ``I-`` is no entity.

    Example: ``["B-PER", "I-PER", "O", "I-LOC"]`` -> ``[("PER", 0, 1), ("LOC", 3, 3)]``.
    """
    found: list[tuple[str, int, int]] = []
    open_type, first = "", 0
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        continues = prefix == "I" and kind == open_type
        if open_type and not continues:
            found.append((open_type, first, position - 1))
            open_type = ""
        if kind and not continues:
            open_type, first = kind, position
    return found


def entity_f1(
    true_tags: Sequence[Sequence[str]], predicted_tags: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return precision, recall, F1 and support over all entities, and ``by_type``.

    An entity counts when its type and both ends are right; all entities weigh the same.
    """
    hits: dict[str, int] = {}
    support: dict[str, int] = {}
    predicted: dict[str, int] = {}
    for true_row, predicted_row in zip(true_tags, predicted_tags, strict=True):
        true_set, predicted_set = set(entities_of(true_row)), set(entities_of(predicted_row))
        for counts, entities in (
            (hits, true_set & predicted_set),
            (support, true_set),
            (predicted, predicted_set),
        ):
            for kind, _, _ in entities:
                counts[kind] = counts.get(kind, 0) + 1

    def row(hit: int, guesses: int, real: int) -> dict[str, Any]:
        return {
            **precision_recall_f1(hit, guesses, real),
            "support": real,
            "predicted": guesses,
        }

    kinds = sorted(support | predicted)
    return {
        **row(sum(hits.values()), sum(predicted.values()), sum(support.values())),
        "by_type": {
            kind: row(hits.get(kind, 0), predicted.get(kind, 0), support.get(kind, 0))
            for kind in kinds
        },
    }


def tags_of(
    logits: FloatArray, labels: NDArray[np.int32], names: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return one row's (true, predicted) tags, one for each labelled word."""
    is_labelled = labels != IGNORED_LABEL
    predicted = logits.argmax(axis=-1)[is_labelled]
    return [names[label] for label in labels[is_labelled]], [names[label] for label in predicted]


def precision_recall_f1(hits: int, predicted: int, support: int) -> dict[str, float]:
    """Return the three shares from counts; each is 0 where its denominator is 0."""
    both = predicted + support
    return {
        "precision": hits / predicted if predicted else 0.0,
        "recall": hits / support if support else 0.0,
        "f1": 2 * hits / both if both else 0.0,
    }
