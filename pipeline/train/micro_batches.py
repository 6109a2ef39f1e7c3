"""Rows of the shards to the padded tensors of one forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.contract.batching import IntArray, pad_rows
from pipeline.contract.label_sets import multi_hot
from pipeline.contract.shards import ShardSplit
from pipeline.contract.tokenization import IGNORED_LABEL


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


class MicroBatchReader:
    """Reads, slices and pads rows of one split."""

    def __init__(
        self,
        split: ShardSplit,
        *,
        micro_batch: int,
        pad_token_id: int,
        is_token_task: bool,
        multi_hot_size: int | None = None,
        device: torch.device,
    ) -> None:
        """Keep what every batch needs.

        Args:
            split: the rows.
            micro_batch: rows of one forward pass.
            pad_token_id: fills the padding.
            is_token_task: every token bears a label.
            multi_hot_size: labels of a multi-label task, None for any other.
            device: where the tensors go.
        """
        self._split = split
        self._row_ids = split.row_ids
        self._micro_batch = micro_batch
        self._pad_token_id = pad_token_id
        self._is_token_task = is_token_task
        self._multi_hot_size = multi_hot_size
        self._device = device

    def read(self, indices: IntArray) -> list[MicroBatch]:
        """Return the rows in slices of ``micro_batch``; none for no rows."""
        starts = range(0, len(indices), self._micro_batch)
        return [self._pad(indices[start : start + self._micro_batch]) for start in starts]

    def _pad(self, indices: IntArray) -> MicroBatch:
        ids = [self._split.input_ids(int(index)) for index in indices]
        labels = [self._split.labels(int(index)) for index in indices]
        input_ids, mask = pad_rows(ids, pad_value=self._pad_token_id)
        return MicroBatch(
            input_ids=torch.from_numpy(input_ids).to(self._device),
            attention_mask=torch.from_numpy(mask).to(self._device),
            labels=torch.from_numpy(self._label_array(labels)).to(self._device),
            row_ids=tuple(int(row_id) for row_id in self._row_ids[indices]),
        )

    def _label_array(
        self, labels: Sequence[NDArray[np.int32]]
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        if self._multi_hot_size is not None:
            return multi_hot(labels, self._multi_hot_size).astype(np.float32)
        if self._is_token_task:
            return pad_rows(labels, pad_value=IGNORED_LABEL)[0]
        return np.array([row[0] for row in labels], dtype=np.int64)
