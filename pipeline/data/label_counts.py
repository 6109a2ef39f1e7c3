"""Which labels occur in which split, and whether a model can learn from that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.config import Task
from pipeline.contract.batching import IntArray
from pipeline.contract.errors import DataError
from pipeline.contract.shards import SPLITS
from pipeline.data.spool import Spool

OUTSIDE_LABEL = "O"


@dataclass(frozen=True, kw_only=True)
class LabelCounts:
    """How often each label occurs among the kept rows of each split."""

    counts: dict[str, IntArray]
    """Label → ``int64 [splits]``."""
    num_rows: IntArray
    """Kept rows of each split, ``int64 [splits]``."""

    def of(self, split: str) -> set[str]:
        """Return the labels that occur in a split."""
        at = SPLITS.index(split)
        return {label for label, counts in self.counts.items() if counts[at]}


def count_labels(spool: Spool, split: NDArray[np.int8]) -> LabelCounts:
    """Return the counts of all rows with a split; the spool is read block by block.

    Args:
        spool: with a column ``labels``.
        split: of every row, position in ``SPLITS`` or -1.
    """
    counts: dict[str, IntArray] = {}
    for rows, block in spool.blocks():
        for label, found in _count_block(block.column("labels"), split[rows]):
            counts[label] = counts.get(label, 0) + found
    num_rows = np.bincount(split[split >= 0], minlength=len(SPLITS))
    seen = {label: found for label, found in counts.items() if found.any()}
    return LabelCounts(counts=seen, num_rows=num_rows)


def _count_block(labels: pa.ListArray, split: NDArray[np.int8]) -> list[tuple[str, IntArray]]:
    encoded = labels.flatten().dictionary_encode()
    split_of_value = split[np.asarray(pc.list_parent_indices(labels))]
    is_kept = split_of_value >= 0
    indices = np.asarray(encoded.indices)[is_kept].astype(np.int64)
    names = encoded.dictionary.to_pylist()
    table = np.bincount(
        indices * len(SPLITS) + split_of_value[is_kept], minlength=len(names) * len(SPLITS)
    )
    return list(zip(names, table.reshape(-1, len(SPLITS)), strict=True))


def order_labels(found: Sequence[str], names_in_order: Sequence[str]) -> list[str]:
    """Return the labels in the order of their ids.

    First those of ``data.label_names`` in its order; others by number if all are
    numbers, else by name; ``O`` always first.
    """
    named = [name for name in dict.fromkeys(names_in_order) if name in found]
    others = set(found).difference(named)
    if all(label.isdecimal() for label in others):
        ordered = named + sorted(others, key=lambda label: (int(label), label))
    else:
        ordered = named + sorted(others)
    return sorted(ordered, key=lambda label: label != OUTSIDE_LABEL)


def check_labels(found: LabelCounts, task: Task) -> None:
    """Refuse rows that nothing can be learned from.

    Raises:
        DataError: there is no row, no label or (but for multi-label) only one; a split is empty;
            there are more labels than train rows; or a label of validation or test never
            occurs in train.
    """
    labels = sorted(found.counts)
    if not found.num_rows.sum():
        _fail("no usable row is left", labels)
    if task is not Task.MULTI_LABEL and len(labels) == 1:
        _fail("there is only one label, so there is nothing to tell apart", labels)
    if not labels:
        _fail("no row has a label", labels)
    sizes = dict(zip(SPLITS, found.num_rows.tolist(), strict=True))
    for split in SPLITS:
        if not sizes[split]:
            raise DataError(
                f"no row falls to the {split} split",
                place="data.files",
                value=sizes,
                remedy="Add rows, or raise data.sample_rows, data.validation_share or "
                "data.test_share.",
            )
    if len(labels) > sizes["train"]:
        raise DataError(
            f"there are more labels ({len(labels):,}) than train rows ({sizes['train']:,})",
            place="data.label_column",
            value=labels[:5],
            remedy="Name a column that holds classes, not texts or identifiers.",
        )
    for split in ("validation", "test"):
        unseen = sorted(found.of(split) - found.of("train"))
        if unseen:
            raise DataError(
                f"labels of the {split} rows never occur among the {sizes['train']:,} train rows",
                place="data.files",
                value=unseen,
                remedy="Add rows of these labels, or take theirs out.",
            )


def check_no_label_lost(labels: Sequence[str], found: LabelCounts) -> None:
    """Refuse that the rejection of too long texts took a label away.

    Args:
        labels: before the rejection.
        found: after it.

    Raises:
        DataError: a label is left without a row.
    """
    lost = [label for label in labels if label not in found.counts]
    if lost:
        raise DataError(
            "every row with these labels is over model.max_seq_len",
            place="data.on_too_long",
            value=lost,
            remedy="Raise model.max_seq_len, or set data.on_too_long to truncate or window.",
        )


def _fail(problem: str, labels: list[str]) -> NoReturn:
    raise DataError(
        problem,
        place="data.files",
        value=labels,
        remedy="Add rows of another label, or check data.label_column.",
    )
