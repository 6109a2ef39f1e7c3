"""Chooses which rows are kept and which split each belongs to, by hash of its text."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from pipeline.config import DataSettings, Task
from pipeline.contract.errors import DataError
from pipeline.contract.shards import SPLITS
from pipeline.data.cleaning import CleanRow

OUTSIDE_LABEL = "O"


def split_of(text_sha256: bytes, *, validation_share: float, test_share: float) -> str:
    """Return the split of a text; other rows and the seed have no say in it.

    The hash's first 64 bits, read as a number in [0, 1): test below ``test_share``, then
    validation, then train.
    """
    position = int.from_bytes(text_sha256[:8]) / 2**64
    if position < test_share:
        return "test"
    return "validation" if position < test_share + validation_share else "train"


def sample_rows(rows: Sequence[CleanRow], *, count: int, seed: int, task: Task) -> list[CleanRow]:
    """Return at most ``count`` rows in their order, the labels as equal as they can be.

    Within a label the rows go by hash of seed and text, so added rows displace few. A
    label with too few rows gives all it has and the others share the rest. Sentences with
    word labels are one pool.
    """
    pools: dict[str, list[CleanRow]] = {}
    for row in rows:
        pools.setdefault(row.labels[0] if task is Task.SEQUENCE else "", []).append(row)
    quotas = share_out({label: len(pool) for label, pool in pools.items()}, count)
    chosen = [
        row
        for label, pool in pools.items()
        for row in sorted(pool, key=lambda row: _draw(row, seed))[: quotas[label]]
    ]
    return sorted(chosen, key=lambda row: row.row_id)


def _draw(row: CleanRow, seed: int) -> bytes:
    return hashlib.sha256(b"%d:%b" % (seed, row.text_sha256)).digest()


def share_out(available: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many to take of each label: equal, no more than there are, ``count`` in all.

    Example: ``{"a": 2, "b": 9, "c": 9}``, count 10 -> ``{"a": 2, "b": 4, "c": 4}``.
    """
    quotas = {}
    by_size = sorted(available, key=lambda label: (available[label], label))
    for place, label in enumerate(by_size):
        quotas[label] = min(available[label], count // (len(by_size) - place))
        count -= quotas[label]
    return quotas


def order_labels(rows: Sequence[CleanRow], names_in_order: Sequence[str]) -> list[str]:
    """Return the labels that occur, in the order of their ids.

    First those of ``data.label_names`` in its order; others by number if all are
    numbers, else by name; ``O`` always first.
    """
    found = {label for row in rows for label in row.labels}
    named = [name for name in dict.fromkeys(names_in_order) if name in found]
    others = found.difference(named)
    if all(label.isdecimal() for label in others):
        ordered = named + sorted(others, key=lambda label: (int(label), label))
    else:
        ordered = named + sorted(others)
    return sorted(ordered, key=lambda label: label != OUTSIDE_LABEL)


def assign_splits(rows: Sequence[CleanRow], data: DataSettings, task: Task) -> list[str]:
    """Return the split of every row.

    Raises:
        DataError: there are fewer than two labels for the sequence task, a split is empty,
            or a label of validation or test never occurs in train.
    """
    splits = [
        split_of(
            row.text_sha256, validation_share=data.validation_share, test_share=data.test_share
        )
        for row in rows
    ]
    labels: dict[str, set[str]] = {split: set() for split in SPLITS}
    for row, split in zip(rows, splits, strict=True):
        labels[split].update(row.labels)
    all_labels = set().union(*labels.values())
    if task is Task.SEQUENCE and len(all_labels) < 2:
        raise DataError(
            "there is only one label, so there is nothing to tell apart"
            if all_labels
            else "no usable row is left",
            place="data.files",
            value=sorted(all_labels),
            remedy="Add rows of another label, or check data.label_column.",
        )
    sizes = Counter(splits)
    _check_sizes(sizes)
    for split in ("validation", "test"):
        unseen = sorted(labels[split] - labels["train"])
        if unseen:
            raise DataError(
                f"labels of the {split} rows never occur among the {sizes['train']:,} train rows",
                place="data.files",
                value=unseen,
                remedy="Add rows of these labels, or take theirs out.",
            )
    return splits


def _check_sizes(sizes: Mapping[str, int]) -> None:
    for split in SPLITS:
        if not sizes.get(split):
            raise DataError(
                f"no row falls to the {split} split",
                place="data.files",
                value={name: sizes.get(name, 0) for name in SPLITS},
                remedy="Add rows, or raise data.sample_rows, data.validation_share or "
                "data.test_share.",
            )
