"""How far a text's logits move with the company it is scored in."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import pad_rows
from pipeline.export.onnx_session import LogitsFunction

_NUM_MATES = 7


def measure_batch_shift(
    run: LogitsFunction,
    rows: Sequence[NDArray[np.int32]],
    *,
    probes: int,
    pad_token_id: int,
    max_seq_len: int,
) -> float:
    """Return the largest change of a logit between a text alone and the same text elsewhere.

    Elsewhere is: alone but padded to ``max_seq_len``, and in one batch with the longest
    rows. FP32 moves by rounding only; INT8 scales activations over the whole padded
    batch, so its figure is the tolerance that a comparison of two versions needs.

    Args:
        run: the model.
        rows: token ids of texts, each ``[seq]``; at least one.
        probes: number of texts to try, spread evenly over the lengths.
        pad_token_id: fills the padding.
        max_seq_len: tokens of the longest text.
    """
    by_length = sorted(rows, key=len)
    mates = by_length[-_NUM_MATES:]
    chosen = np.unique(np.linspace(0, len(rows) - 1, num=min(probes, len(rows)), dtype=np.int64))
    largest = 0.0
    for index in chosen:
        row = by_length[int(index)]
        alone = run(*pad_rows([row], pad_value=pad_token_id))[0]
        padded = run(*pad_rows([row], pad_value=pad_token_id, seq_len=max_seq_len))[0]
        mixed = run(*pad_rows([row, *mates], pad_value=pad_token_id))[0]
        for other in (padded, mixed):
            # Token logits have one line for each position; those of the padding mean nothing.
            same = other[: len(row)] if other.ndim == 2 else other
            largest = max(largest, float(np.max(np.abs(same - alone))))
    return largest
