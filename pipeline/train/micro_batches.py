"""Rows of the shards to the padded tensors of one forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.contract.batching import IntArray, pad_rows
from pipeline.contract.label_sets import multi_hot
from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import IGNORED_LABEL
from pipeline.data.augment import Augmentation, augment_rows, row_keys
from pipeline.data.slices import SliceSettings, slice_starts


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """One padded forward pass."""

    input_ids: Tensor
    """int64 ``[batch, seq]``."""
    attention_mask: Tensor
    """int64 ``[batch, seq]``."""
    labels: Tensor
    """int64 ``[batch]``; int64 ``[batch, seq]`` with -100 where no word starts; or, multi-label,
    float32 ``[batch, num_labels]``: 1 on a row's labels, 0 elsewhere."""
    row_ids: tuple[int, ...]
    """Identity of every row, for messages."""

    @property
    def num_labelled(self) -> int:
        """Rows, or tokens for token labels, that take part in the loss.

        A multi-label row without any label counts too: that is what is to be learned.
        """
        if self.labels.is_floating_point():
            return len(self.labels)
        return int((self.labels != IGNORED_LABEL).sum())

    @property
    def num_tokens(self) -> int:
        """Tokens without padding."""
        return int(self.attention_mask.sum())

    @property
    def num_padded_tokens(self) -> int:
        """Tokens with padding."""
        return self.input_ids.numel()

    def to(self, device: torch.device) -> "MicroBatch":
        """Return the batch with its tensors on a device."""
        return MicroBatch(
            input_ids=self.input_ids.to(device),
            attention_mask=self.attention_mask.to(device),
            labels=self.labels.to(device),
            row_ids=self.row_ids,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes as plain bytes.

        Torch would put each tensor into shared memory, of which containers have little, and
        keep a file open for it.
        """
        tensors = (self.input_ids, self.attention_mask, self.labels)
        return _from_arrays, (*(tensor.numpy() for tensor in tensors), self.row_ids)


def _from_arrays(
    input_ids: IntArray, attention_mask: IntArray, labels: NDArray[Any], row_ids: tuple[int, ...]
) -> MicroBatch:
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids),
        attention_mask=torch.from_numpy(attention_mask),
        labels=torch.from_numpy(labels),
        row_ids=row_ids,
    )


def split_micro_batches(micro_batches: Sequence[MicroBatch], limit: int) -> list[MicroBatch]:
    """Return the same rows with at most ``limit`` in each batch, without needless padding.

    Cut from the last (longest) row down, as the reader cuts. Example: 5 rows, limit 2 -> 1, 2, 2.
    """
    parts = []
    for micro in micro_batches:
        num_rows = len(micro.row_ids)
        if num_rows <= limit:
            parts.append(micro)
            continue
        starts = [0, *range(num_rows % limit or limit, num_rows + 1, limit)]
        parts.extend(_take_rows(micro, slice(*pair)) for pair in pairwise(starts))
    return parts


def _take_rows(micro: MicroBatch, rows: slice) -> MicroBatch:
    longest = int(micro.attention_mask[rows].sum(dim=1).max())
    labels = micro.labels[rows]
    # Token labels are padded as the ids are.
    is_padded = labels.dim() == 2 and not labels.is_floating_point()
    return MicroBatch(
        input_ids=micro.input_ids[rows, :longest],
        attention_mask=micro.attention_mask[rows, :longest],
        labels=labels[:, :longest] if is_padded else labels,
        row_ids=micro.row_ids[rows],
    )


class MicroBatchReader:
    """Reads, augments, slices and pads rows of one split, on the CPU."""

    def __init__(
        self,
        split: ShardSplit,
        *,
        slices: SliceSettings,
        pad_token_id: int,
        is_token_task: bool,
        multi_hot_size: int | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        """Keep what every batch needs.

        Args:
            split: the rows.
            slices: what bounds one forward pass.
            pad_token_id: fills the padding.
            is_token_task: every token bears a label.
            multi_hot_size: labels of a multi-label task, None for any other.
            augmentation: masks tokens; None leaves the rows as they are.
        """
        self._split = split
        self._row_ids, self._windows = split.row_ids, split.windows
        self._lengths, self._slices = split.lengths, slices
        self._pad_token_id = pad_token_id
        self._is_token_task = is_token_task
        self._multi_hot_size = multi_hot_size
        self._augmentation = augmentation

    def read(self, indices: IntArray, *, epoch: int) -> list[MicroBatch]:
        """Return the rows in slices as :func:`slice_starts` cuts them; none for no rows.

        The rows come short to long, as :func:`~pipeline.data.plan.rank_slice` deals them.

        The epoch decides what augmentation does to a row.
        """
        starts = slice_starts(self._lengths[indices], self._slices)
        return [self._pad(indices[begin:end], epoch) for begin, end in pairwise(starts.tolist())]

    def _pad(self, indices: IntArray, epoch: int) -> MicroBatch:
        ids = [self._split.input_ids(int(index)) for index in indices]
        if self._augmentation:
            ids = self._augment(ids, indices, epoch, self._augmentation)
        labels = [self._split.labels(int(index)) for index in indices]
        input_ids, mask = pad_rows(ids, pad_value=self._pad_token_id)
        return MicroBatch(
            input_ids=torch.from_numpy(input_ids),
            attention_mask=torch.from_numpy(mask),
            labels=torch.from_numpy(self._label_array(labels)),
            row_ids=tuple(int(row_id) for row_id in self._row_ids[indices]),
        )

    def _augment(
        self,
        ids: Sequence[NDArray[np.int32]],
        indices: IntArray,
        epoch: int,
        augmentation: Augmentation,
    ) -> list[NDArray[np.int32]]:
        keys = row_keys(augmentation.seed, epoch, self._row_ids[indices], self._windows[indices])
        return augment_rows(ids, keys, augmentation)

    def _label_array(
        self, labels: Sequence[NDArray[np.int32]]
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        if self._multi_hot_size is not None:
            return multi_hot(labels, self._multi_hot_size).astype(np.float32)
        if self._is_token_task:
            return pad_rows(labels, pad_value=IGNORED_LABEL)[0]
        return np.array([row[0] for row in labels], dtype=np.int64)
