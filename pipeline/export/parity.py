"""Numeric parity: the logits of two models side by side over a grid of batch sizes and lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.onnx_session import LogitsFunction

GRID_BATCH_SIZES = (1, 2, 32)
"""One row, the smallest batch, and the largest that serving forms (its default)."""
_SHORTEST_SEQ_LENS = (1, 3)


@dataclass(frozen=True, kw_only=True)
class ParityCell:
    """One input of the grid and what the reference answers."""

    input_ids: IntArray
    """``int64 [batch, seq]``."""
    attention_mask: IntArray
    """``int64 [batch, seq]``; has holes, and is 1 on every row's first token."""
    logits: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ParityResult:
    """How far a model's logits were from the reference's, and where they were farthest."""

    max_abs_difference: float
    atol: float
    """What was allowed."""
    worst_batch: int
    worst_seq_len: int
    """Batch size and length of the cell with the largest difference."""
    num_cells: int

    def as_figures(self) -> dict[str, Any]:
        """Return the result as it stands in the bundle's manifest."""
        return {
            "max_abs_difference": self.max_abs_difference,
            "atol": self.atol,
            "worst": {"batch": self.worst_batch, "seq": self.worst_seq_len},
            "cells": self.num_cells,
        }


def grid_seq_lens(bucket_edges: Sequence[int] | IntArray, max_seq_len: int) -> list[int]:
    """Return the lengths to try: 1, 3, every bucket edge and the longest, ascending.

    Example: edges ``[16, 64]``, longest 128 -> ``[1, 3, 16, 64, 128]``.
    """
    wanted = {*_SHORTEST_SEQ_LENS, *(int(edge) for edge in bucket_edges), max_seq_len}
    return sorted(length for length in wanted if length <= max_seq_len)


def build_parity_cells(
    reference: LogitsFunction,
    *,
    seq_lens: Sequence[int],
    vocab_size: int,
    seed: int,
    sep_token_id: int | None = None,
) -> list[ParityCell]:
    """Return the grid with random ids and masks, answered by the reference model.

    Args:
        reference: the model that is right.
        seq_lens: lengths of the grid.
        vocab_size: the ids are below it.
        seed: draws ids and masks.
        sep_token_id: for a model of pairs; put into every row, so that token types differ.
    """
    rng = np.random.default_rng(seed)
    cells = []
    for batch in GRID_BATCH_SIZES:
        for seq_len in seq_lens:
            input_ids = rng.integers(0, vocab_size, (batch, seq_len), dtype=np.int64)
            mask = rng.integers(0, 2, (batch, seq_len), dtype=np.int64)
            mask[:, 0] = 1
            if sep_token_id is not None:
                input_ids[np.arange(batch), rng.integers(0, seq_len, batch)] = sep_token_id
            logits = reference(input_ids, mask)
            cells.append(ParityCell(input_ids=input_ids, attention_mask=mask, logits=logits))
    return cells


def check_parity(
    candidate: LogitsFunction,
    cells: Sequence[ParityCell],
    *,
    atol: float,
    name: str,
    setting: str | None = "export.atol",
) -> ParityResult:
    """Compare a candidate's logits with the reference's, cell by cell.

    Args:
        candidate: the model to check.
        cells: of :func:`build_parity_cells`.
        atol: the largest absolute difference allowed.
        name: the candidate's name in errors.
        setting: the setting that gives ``atol``; None where none does.

    Raises:
        ExportError: there is no cell, or a difference is over ``atol`` or not finite; it names
            the worst cell.
    """
    if not cells:
        raise ExportError("there is nothing to compare with", place=name)
    differences = [_largest_difference(candidate, cell, name=name) for cell in cells]
    worst = int(np.argmax(differences))
    batch, seq_len = cells[worst].input_ids.shape
    if differences[worst] == float("inf"):
        raise ExportError(
            f"its logits are not finite at batch {batch}, seq {seq_len}, or torch's are not",
            place=name,
            remedy="Numbers overflow in this model: train with a lower train.base_lr or more "
            "train.weight_decay, or export without this model file.",
        )
    if differences[worst] > atol:
        advice = f"Raise {setting} only if the difference is harmless for the labels."
        raise ExportError(
            f"its logits differ from torch's by more than atol {atol:g}, "
            f"most at batch {batch}, seq {seq_len}",
            place=name,
            value=differences[worst],
            remedy=advice if setting else None,
        )
    return ParityResult(
        max_abs_difference=differences[worst],
        atol=atol,
        worst_batch=batch,
        worst_seq_len=seq_len,
        num_cells=len(cells),
    )


def _largest_difference(candidate: LogitsFunction, cell: ParityCell, *, name: str) -> float:
    logits = candidate(cell.input_ids, cell.attention_mask)
    if logits.shape != cell.logits.shape:
        raise ExportError(
            f"its logits must have the shape {cell.logits.shape}", place=name, value=logits.shape
        )
    difference = float(np.max(np.abs(logits - cell.logits)))
    # NaN compares as neither smaller nor larger, so it would pass for a match.
    return difference if np.isfinite(difference) else float("inf")
