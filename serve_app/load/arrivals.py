"""When requests of an open loop are due: drawn, or read from a recorded trace."""

import csv
import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.contract.errors import ConfigError, DataError

FloatArray = npt.NDArray[np.float64]

_MAX_ARRIVALS = 10_000_000
"""Chosen: so many samples still fit into the memory of a small machine."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Recorded arrivals."""

    due_s: FloatArray
    """Seconds since the first, ascending."""
    is_cut: bool
    """Whether the file has more than the run has time for."""


def poisson_due_times(*, rate_per_s: float, seconds: float, seed: int) -> FloatArray:
    """Return the times of a Poisson process in ``[0, seconds)``, seconds, ascending.

    Gaps are exponential with mean ``1 / rate_per_s``; the same seed gives the same times,
    and a longer run begins with those of a shorter one.

    Raises:
        ConfigError: these are too many requests.
    """
    if rate_per_s * seconds > _MAX_ARRIVALS:
        raise ConfigError(
            f"{rate_per_s:g} requests/s for {seconds:g} s are over {_MAX_ARRIVALS:,} requests",
            place="--rate",
            remedy="Lower --rate or --seconds.",
        )
    random = np.random.default_rng([seed, 1])
    blocks: list[FloatArray] = []
    last = 0.0
    while last < seconds:
        # Blocks of one size, so that the draws do not depend on how long the run is.
        block = last + np.cumsum(random.exponential(1.0 / rate_per_s, size=1024))
        blocks.append(block)
        last = float(block[-1])
    times = np.concatenate(blocks)
    return times[times < seconds]


def trace_due_times(file: Path, *, column: str, speed: float, seconds: float) -> Trace:
    """Return the arrivals of a CSV file in ``[0, seconds)``, seconds, ascending.

    The first arrival becomes 0; ``speed`` 2 replays in half the time.

    Raises:
        ConfigError: the file cannot be read or has no such column.
        DataError: a row has no time, times go backwards, or there is no row.
    """
    times: list[float] = []
    is_cut, first, previous = False, 0.0, 0.0
    for place, value in _read_column(file, column):
        time_s = _as_time(value, place=place)
        first = time_s if not times else first
        if times and time_s < previous:
            raise DataError(
                f"goes back in time, after {previous:g}",
                place=place,
                value=value,
                remedy="Sort the file, or name the column of arrival times with --column.",
            )
        previous = time_s
        due = (time_s - first) / speed
        is_cut = due >= seconds or len(times) >= _MAX_ARRIVALS
        if is_cut:
            break
        times.append(due)
    if not times:
        raise DataError("has no rows", place=str(file), remedy="Name a CSV file with arrivals.")
    return Trace(due_s=np.array(times), is_cut=is_cut)


def _read_column(file: Path, column: str) -> Iterator[tuple[str, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            names = list(reader.fieldnames or ())
            if column not in names:
                raise _no_column(file, column, names)
            for row in reader:
                yield f"{file}:{reader.line_num}, column {column}", row[column] or ""
    except (OSError, UnicodeError, csv.Error) as error:
        raise ConfigError(
            f"cannot be read as CSV in UTF-8: {getattr(error, 'strerror', None) or error}",
            place=f"--arrivals {file}",
            remedy="Name a CSV file with a header and a column of seconds.",
        ) from None


def _no_column(file: Path, column: str, names: list[str]) -> ConfigError:
    close = difflib.get_close_matches(column, names, 1)
    hint = f"Did you mean {close[0]}? " if close else ""
    shown = ", ".join(name or "''" for name in names)[:300] or "none"
    return ConfigError(
        f"has no column {column!r}",
        place=f"--arrivals {file}",
        remedy=f"{hint}Name one with --column; the file has: {shown}.",
    )


def _as_time(value: str, *, place: str) -> float:
    try:
        time_s = float(value)
    except ValueError:
        time_s = math.nan
    if not math.isfinite(time_s):
        raise DataError(
            "is no number of seconds",
            place=place,
            value=value,
            remedy="Write arrival times as seconds, such as 12.5.",
        )
    return time_s
