"""What a model run costs: seconds from padded tokens and length, fitted to measured runs."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.contract.batching import IntArray
from pipeline.contract.settings import Settings

FloatArray = NDArray[np.float64]


class Cell(Settings):
    """Measured time of one model run."""

    threads: int = Field(ge=1)
    batch: int = Field(ge=1)
    """Rows."""
    seq: int = Field(ge=1)
    """Tokens of every row."""
    seconds: float = Field(gt=0.0)
    """The least of the runs."""
    runs: int = Field(ge=1)

    @property
    def tokens(self) -> int:
        """Padded tokens of the run."""
        return self.batch * self.seq


class CostFit(Settings):
    """``seconds = run_s + token_s · tokens + token_seq_s · tokens · seq`` at so many threads.

    Of a transformer's work all is proportional to the padded tokens but attention's scores,
    which compare each token with all of its row (Vaswani et al. 2017, "Attention Is All You
    Need", table 1: complexity per layer).
    """

    threads: int = Field(ge=1)
    run_s: float = Field(ge=0.0)
    """Seconds of any run, however small."""
    token_s: float = Field(ge=0.0)
    """Seconds of each padded token."""
    token_seq_s: float = Field(ge=0.0)
    """Seconds of each padded token for each token of its row."""
    median_error: float = Field(ge=0.0)
    """Middle of |fitted / measured - 1| over the cells."""
    worst_error: float = Field(ge=0.0)
    """Largest of |fitted / measured - 1| over the cells."""

    def seconds(self, batch: int | IntArray, seq: int | IntArray) -> FloatArray:
        """Return the seconds of runs of these shapes, ``float64``, shaped as the arguments."""
        tokens = np.multiply(batch, seq, dtype=np.float64)
        cost = self.run_s + tokens * (self.token_s + self.token_seq_s * np.asarray(seq))
        return np.asarray(cost, dtype=np.float64)


def fit_cost(cells: Sequence[Cell]) -> CostFit:
    """Return the cost that fits the cells of one number of threads best.

    Least squares on the relative error, so that runs of a millisecond count as much as those
    of a second, under coefficients of zero or more. With three coefficients every set of
    those that are not zero is tried; the least error among the sets whose own solution has
    no negative one is the constrained optimum (Lawson and Hanson 1974, "Solving Least Squares
    Problems", chapter 23).

    Raises:
        ValueError: no cells, or of several numbers of threads.
    """
    threads = {cell.threads for cell in cells}
    if len(threads) != 1:
        raise ValueError(f"need cells of one number of threads, got {sorted(threads)}")
    tokens = np.array([cell.tokens for cell in cells], dtype=np.float64)
    lengths = np.array([cell.seq for cell in cells], dtype=np.float64)
    seconds = np.array([cell.seconds for cell in cells], dtype=np.float64)
    terms = np.stack([np.ones_like(tokens), tokens, tokens * lengths], axis=1)
    solution = _solve_non_negative(terms / seconds[:, None])
    errors = np.abs(terms @ solution / seconds - 1.0)
    return CostFit(
        threads=threads.pop(),
        run_s=float(solution[0]),
        token_s=float(solution[1]),
        token_seq_s=float(solution[2]),
        median_error=float(np.median(errors)),
        worst_error=float(errors.max()),
    )


def _solve_non_negative(terms: FloatArray) -> FloatArray:
    """Return x >= 0, ``float64 [3]``, with the least ``|terms @ x - 1|``; fewest terms on ties."""
    best, least = np.zeros(terms.shape[1]), np.inf
    for size in range(1, terms.shape[1] + 1):
        for chosen in combinations(range(terms.shape[1]), size):
            columns = terms[:, chosen]
            # The terms lie up to nine powers of ten apart; unscaled, lstsq takes some for zero.
            scale = np.linalg.norm(columns, axis=0)
            part = np.linalg.lstsq(columns / scale, np.ones(len(terms)), rcond=None)[0] / scale
            error = float(np.square(columns @ part - 1.0).sum())
            # A further term must earn its place beyond rounding.
            if (part >= 0.0).all() and error < least - 1e-12:
                best, least = np.zeros(terms.shape[1]), error
                best[list(chosen)] = part
    return best
