"""Times model runs over (threads, batch, seq) within a budget of seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.contract.batching import IntArray
from pipeline.contract.errors import InferenceError
from serve_app.cost_model import Cell

BATCHES = (1, 2, 4, 8, 16, 32)
_SHORTEST_SEQ = 8
_MAX_ROUNDS = 5
_CELL_SHARE = 0.1
"""Of the budget; a shape whose runs in the first round would take more is left out."""
_FIRST_SHARE = 0.5
"""Of the budget, for the first round, so that a second one can follow."""
_TIMED_RUNS = 2
"""Of a shape in a round, after a first run that allocates and is not timed."""

Shape = tuple[int, int]
"""(batch, seq)."""
Run = Callable[[IntArray, IntArray], object]
"""Runs ``input_ids`` and ``attention_mask``, both ``int64 [batch, seq]``."""
OpenRun = Callable[[int], Run]
"""Loads the model for so many threads."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured, and what there was no time for."""

    cells: tuple[Cell, ...]
    skipped: tuple[tuple[int, int, int], ...]
    """(threads, batch, seq)."""


def thread_counts(cpus: int) -> list[int]:
    """Return 1, 2, 4 … below the CPUs, and their number. Example: 6 -> ``[1, 2, 4, 6]``."""
    return sorted({1 << power for power in range(cpus.bit_length()) if 1 << power < cpus} | {cpus})


def seq_lens(max_seq_len: int) -> list[int]:
    """Return 8, 16, 32 … below the longest, and the longest. Example: 48 -> [8, 16, 32, 48]."""
    lengths = {_SHORTEST_SEQ << power for power in range(max_seq_len.bit_length())}
    return sorted({length for length in lengths if length < max_seq_len} | {max_seq_len})


def shape_grid(*, max_seq_len: int, max_batch_rows: int) -> list[Shape]:
    """Return every (batch, seq) to measure, from few padded tokens to many."""
    batches = [batch for batch in BATCHES if batch <= max_batch_rows]
    shapes = [(batch, seq) for seq in seq_lens(max_seq_len) for batch in batches]
    return sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape))


def measure_cells(
    open_run: OpenRun,
    *,
    threads: Sequence[int],
    shapes: Sequence[Shape],
    seconds: float,
    clock: Callable[[], float],
    on_time: Callable[[float], None],
) -> Measured:
    """Return the least time of each shape at each number of threads.

    The least, because whatever else the machine does can only add to a run (as the Python
    documentation of ``timeit`` advises for ``repeat``).

    A round opens the model once for each number of threads, one after the other (so that
    memory never holds two), and runs every shape; further rounds follow while the budget
    lasts, so that a busy while of the machine falls on no shape alone. In the first round a
    shape that would take over a tenth of the budget is left out, and what would not fit into
    its first half; the shortest and longest single text and the largest batch of shortest ones are
    always run, so that there is something to fit.

    Args:
        open_run: loads the model.
        threads: numbers of threads.
        shapes: of :func:`shape_grid`.
        seconds: budget; what is under way at its end is finished.
        clock: seconds, ascending.
        on_time: is told the seconds since the start, now and then.

    Raises:
        InferenceError: the model cannot run at a shape; names it.
    """
    timer = _Timer(clock=clock, seconds=seconds, on_time=on_time)
    times: dict[tuple[int, Shape], list[float]] = {}
    for number in range(_MAX_ROUNDS):
        began = timer.elapsed()
        for index, count in enumerate(threads):
            run = open_run(count)
            if number == 0:
                until = seconds * _FIRST_SHARE * (index + 1) / len(threads)
                todo = _first_round(timer, run, count, shapes, until)
            else:
                todo = {shape: timer.time(run, shape, count) for shape in _of(times, count)}
            for shape, taken in todo.items():
                times.setdefault((count, shape), []).extend(taken)
        took = timer.elapsed() - began
        if timer.elapsed() + took > seconds:
            break
    cells = [
        Cell(threads=count, batch=batch, seq=seq, seconds=min(taken), runs=len(taken))
        for (count, (batch, seq)), taken in times.items()
    ]
    wanted = [(count, shape) for count in threads for shape in shapes]
    skipped = [(count, *shape) for count, shape in wanted if (count, shape) not in times]
    return Measured(cells=tuple(cells), skipped=tuple(skipped))


def _of(times: dict[tuple[int, Shape], list[float]], count: int) -> list[Shape]:
    return [shape for threads, shape in times if threads == count]


def _first_round(
    timer: "_Timer", run: Run, count: int, shapes: Sequence[Shape], until: float
) -> dict[Shape, list[float]]:
    longest = max(seq for _, seq in shapes)
    shortest = min(seq for _, seq in shapes)
    most_rows = max(batch for batch, _ in shapes)
    needed = {(1, shortest), (1, longest), (most_rows, shortest)}
    token_s, times = 0.0, {}
    for shape in shapes:
        # Large shapes cost less for each token than small ones, or a little more for attention.
        expected = (1 + _TIMED_RUNS) * token_s * shape[0] * shape[1]
        is_over = expected > timer.seconds * _CELL_SHARE or timer.elapsed() + expected > until
        if is_over and shape not in needed:
            continue
        times[shape] = timer.time(run, shape, count)
        token_s = min(times[shape]) / (shape[0] * shape[1])
    return times


class _Timer:
    """Runs and times shapes, and knows how long it has been at it."""

    def __init__(
        self, *, clock: Callable[[], float], seconds: float, on_time: Callable[[float], None]
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._on_time = on_time
        self._started = clock()

    def elapsed(self) -> float:
        return self._clock() - self._started

    def time(self, run: Run, shape: Shape, count: int) -> list[float]:
        """Return the seconds of each timed run."""
        # What the ids are does not change the work; id 0 is in every vocabulary.
        input_ids, mask = np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=np.int64)
        taken = []
        for _ in range(1 + _TIMED_RUNS):
            began = self._clock()
            try:
                run(input_ids, mask)
            except InferenceError as error:
                raise InferenceError(
                    error.problem,
                    place=f"batch {shape[0]}, seq {shape[1]}, {count} threads",
                    remedy="The bundle cannot be served at its own limits; export it again.",
                ) from error
            taken.append(self._clock() - began)
        self._on_time(self.elapsed())
        return taken[1:]
