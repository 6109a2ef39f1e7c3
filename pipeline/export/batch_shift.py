"""How far the answer to a text moves with the company it is scored in."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import pad_rows
from pipeline.contract.bundle import BatchShift
from pipeline.contract.errors import ExportError
from pipeline.contract.label_sets import label_scores
from pipeline.export.onnx_session import LogitsFunction
from pipeline.quality import softmax

_NUM_MATES = 3
_FULL_BATCH = 32
"""The largest batch that serving forms by default."""

_Rows = Sequence[NDArray[np.int32]]
_Logits = NDArray[np.float32]


def measure_batch_shift(
    run: LogitsFunction,
    rows: _Rows,
    *,
    probes: int,
    pad_token_id: int,
    seq_lens: Sequence[int],
    is_multi_label: bool,
) -> BatchShift:
    """Return the largest change between a text alone and the same text elsewhere.

    Elsewhere is: alone but padded to each of ``seq_lens`` that holds it, in one batch with
    the longest rows, and in full batches of 32, one with the longest rows and one with rows
    of all lengths. FP32 moves by rounding only; INT8 with one scale of the activations for
    the whole padded batch moves more, and that is the tolerance that a comparison of two
    versions needs.

    Args:
        run: the model.
        rows: token ids of texts, each ``[seq]``.
        probes: number of texts to try, spread evenly over the lengths; at most 32 are.
        pad_token_id: fills the padding.
        seq_lens: the bucket edges and the longest length.
        is_multi_label: whether a probability is the sigmoid of a logit, not of softmax.

    Raises:
        ValueError: there are no rows or no probes.
        ExportError: an answer is not finite.
    """
    if not rows or probes < 1:
        raise ValueError(f"need rows and probes, got {len(rows)}, {probes}")
    by_length = sorted(rows, key=len)
    chosen = _spread(by_length, min(probes, _FULL_BATCH))
    alone = [run(*pad_rows([row], pad_value=pad_token_id))[0] for row in chosen]
    logit = probability = 0.0
    for which, batch, seq_len in _companies(chosen, by_length, seq_lens):
        found = run(*pad_rows(batch, pad_value=pad_token_id, seq_len=seq_len))
        for place, index in enumerate(which):
            # Token logits have one line for each position; those of the padding mean nothing.
            other = found[place]
            same = other[: len(chosen[index])] if other.ndim == 2 else other
            logit = max(logit, _largest(same, alone[index]))
            as_shares = label_scores if is_multi_label else softmax
            change = _largest(as_shares(same), as_shares(alone[index]))
            probability = max(probability, change)
    return BatchShift(logit=logit, probability=probability)


def _spread(by_length: _Rows, count: int) -> list[NDArray[np.int32]]:
    places = np.linspace(0, len(by_length) - 1, num=min(count, len(by_length)), dtype=np.int64)
    return [by_length[int(place)] for place in np.unique(places)]


def _companies(
    chosen: _Rows, by_length: _Rows, seq_lens: Sequence[int]
) -> Iterator[tuple[Sequence[int], _Rows, int | None]]:
    """Yield which probes lead a batch, the batch, and the length to pad it to if not its own."""
    longest = by_length[-_NUM_MATES:]
    for index, row in enumerate(chosen):
        for seq_len in seq_lens:
            if seq_len > len(row):
                yield [index], [row], seq_len
        yield [index], [row, *longest], None
    # A full batch costs most: all probes share it.
    missing = _FULL_BATCH - len(chosen)
    for mates in (by_length[-missing:] if missing else [], _spread(by_length, missing)):
        repeated = [mates[place % len(mates)] for place in range(missing)]
        yield range(len(chosen)), [*chosen, *repeated], None


def _largest(found: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    difference = float(np.max(np.abs(found - expected)))
    if not np.isfinite(difference):
        # NaN is neither more nor less than another figure and would pass for no change.
        raise ExportError("a text's answers are not finite when its batch mates change")
    return difference
