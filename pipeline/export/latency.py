"""Median time of model runs on a grid of batch sizes and lengths."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import ExportError
from pipeline.export.onnx_session import LogitsFunction

LATENCY_BATCHES = (1, 32)
"""One request alone, and the largest batch that serving forms (its default)."""
LATENCY_SEQ_LENS = (16, 64, 256)
_ROUNDS, _ROUNDS_OF_LARGE = 5, 3
_LARGE_TOKENS = 4096
_TOKENS_PER_TURN, _MAX_RUNS_PER_TURN = 2048, 8

Shape = tuple[int, int]


def latency_shapes(max_seq_len: int) -> list[Shape]:
    """Return the ``(batch, seq)`` pairs to time, lengths ascending within a batch size.

    Lengths over ``max_seq_len`` are left out; it stands in for the first of them.

    Example: 128 -> lengths 16, 64, 128; 300 -> 16, 64, 256; 10 -> 10.
    """
    seq_lens = sorted({min(length, max_seq_len) for length in LATENCY_SEQ_LENS})
    return [(batch, seq_len) for batch in LATENCY_BATCHES for seq_len in seq_lens]


def shape_name(shape: Shape) -> str:
    """Return a shape as it stands in the manifest.

    Example: ``(32, 64)`` -> ``32x64``.
    """
    return f"{shape[0]}x{shape[1]}"


def measure_latencies(
    runs: Mapping[str, LogitsFunction],
    shapes: Sequence[Shape],
    *,
    vocab_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """Return the median milliseconds of a run: model → shape → value.

    Models take turns, several rounds of them with another one first each time, so that a
    machine that slows down or a neighbour that wakes up hits all of them. A turn is one run
    that is not timed and several that are, fewer the more tokens they have. All rows are
    real tokens.

    Args:
        runs: the models by name.
        shapes: of :func:`latency_shapes`.
        vocab_size: the ids are below it.
        clock: seconds.

    Raises:
        ExportError: there is no model or no shape to time.

    Example: ``{"model.onnx": {"1x16": 2.9, "32x16": 48.0}}``.
    """
    if not runs or not shapes:
        raise ExportError("there is nothing to time", value={"models": [*runs], "shapes": shapes})
    rng = np.random.default_rng(0)
    figures: dict[str, dict[str, float]] = {name: {} for name in runs}
    for shape in shapes:
        input_ids = rng.integers(0, vocab_size, shape, dtype=np.int64)
        times_s: dict[str, list[float]] = {name: [] for name in runs}
        for name in _turns(list(runs), rounds=_num_rounds(shape)):
            times_s[name] += _time_turn(runs[name], input_ids, clock=clock)
        for name, values in times_s.items():
            figures[name][shape_name(shape)] = round(statistics.median(values) * 1000, 3)
    return figures


def _num_rounds(shape: Shape) -> int:
    # Runs of a second are steady, and dear.
    return _ROUNDS_OF_LARGE if shape[0] * shape[1] >= _LARGE_TOKENS else _ROUNDS


def _turns(names: list[str], *, rounds: int) -> Iterator[str]:
    for index in range(rounds):
        first = index % len(names)
        yield from names[first:] + names[:first]


def _time_turn(
    run: LogitsFunction, input_ids: IntArray, *, clock: Callable[[], float]
) -> list[float]:
    mask = np.ones_like(input_ids)
    run(input_ids, mask)
    times_s = []
    for _ in range(max(1, min(_MAX_RUNS_PER_TURN, _TOKENS_PER_TURN // input_ids.size))):
        started = clock()
        run(input_ids, mask)
        times_s.append(clock() - started)
    return times_s
