"""Median time of one model run at the batch sizes that people compare."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from pipeline.export.onnx_session import LogitsFunction

LATENCY_REPEATS = {1: 30, 32: 5}
"""Batch size → timed runs; medians were stable within a tenth at these counts."""
_WARM_UP_RUNS = 2


def measure_latency(
    run: LogitsFunction,
    *,
    seq_len: int,
    vocab_size: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float | int]:
    """Return the median milliseconds of a run by batch size, and the length they hold for.

    All rows are ``seq_len`` real tokens. Measure one model after the other: the threads
    of a session keep spinning for a moment and would slow down the next one's runs.

    Example: ``{"batch_1": 1.7, "batch_32": 31.0, "seq_len": 27}``.
    """
    rng = np.random.default_rng(0)
    figures: dict[str, float | int] = {}
    for batch, repeats in LATENCY_REPEATS.items():
        input_ids = rng.integers(0, vocab_size, (batch, seq_len), dtype=np.int64)
        mask = np.ones_like(input_ids)
        for _ in range(_WARM_UP_RUNS):
            run(input_ids, mask)
        times_s = []
        for _ in range(repeats):
            started = clock()
            run(input_ids, mask)
            times_s.append(clock() - started)
        figures[f"batch_{batch}"] = round(statistics.median(times_s) * 1000, 3)
    figures["seq_len"] = seq_len
    return figures
