"""Runs rows of token ids through a model in batches of similar length, as serving does."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import pad_rows
from pipeline.export.onnx_session import LogitsFunction

TokenRow = NDArray[np.int32]
"""Token ids of one text, ``int32 [seq]``."""


def run_rows(
    run: LogitsFunction, rows: Sequence[TokenRow], *, pad_token_id: int, batch_rows: int = 32
) -> list[NDArray[np.float32]]:
    """Return every row's logits in the order of the rows.

    Float32 ``[num_labels]`` each, or ``[seq, num_labels]`` of the real tokens where the model
    labels tokens.
    """
    order = sorted(range(len(rows)), key=lambda index: (len(rows[index]), index))
    logits: dict[int, NDArray[np.float32]] = {}
    for start in range(0, len(order), batch_rows):
        chosen = order[start : start + batch_rows]
        batch = run(*pad_rows([rows[index] for index in chosen], pad_value=pad_token_id))
        for index, row in zip(chosen, batch, strict=True):
            # A copy: a view would keep the whole padded batch alive.
            logits[index] = (row[: len(rows[index])] if row.ndim == 2 else row).copy()
    return [logits[index] for index in range(len(rows))]


def mean_error(
    logits: Sequence[NDArray[np.float32]], reference: Sequence[NDArray[np.float32]]
) -> float:
    """Return the mean over the rows of the mean absolute difference of a row's logits.

    Infinite where a difference is not finite: NaN compares as no error at all.
    """
    pairs = zip(logits, reference, strict=True)
    error = float(np.mean([np.abs(row - right).mean(dtype=np.float64) for row, right in pairs]))
    return error if np.isfinite(error) else float("inf")
