"""Tells a leak and fragmentation from a training's memory figures; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.train.device_memory import MemoryReading
from pipeline.train.events import EventKind

_WINDOW_STEPS = 50
"""Chosen: long enough that one of its steps has short rows and little noise."""
_WINDOWS = 7
"""Six rises, three for each half. The first alarm comes after 400 steps at the earliest."""
_GROWTH_SHARE = 0.05
_GROWTH_BYTES = 32 * 10**6
"""Growth worth a word: 5 % and 32 MB. Arenas of malloc and new kernels take less, once warm."""
_STEADY = 0.7
"""The later half's growth over the earlier half's. A leak's is 1. Warm-up, and the record of
lengths drawn at random, grow like a logarithm at most: 0.5 from the second window on."""
_ONE_RISE = 0.5
"""Share of the growth between two windows at most: more is a library that was loaded late, or a
buffer that was made once, however many small rises come with it."""
_WASTE = 1.25
"""Reserved over the highest peak. Below it the allocator's rounding is explanation enough."""


@dataclass(frozen=True, kw_only=True)
class _Window:
    """Some steps in a row."""

    steps: int
    allocated_bytes: int
    """Least, so that neither a spike nor a long row counts."""
    reserved_bytes: int
    """Most; it hardly ever falls."""
    peak_bytes: int
    """Most."""


class MemoryWatch:
    """Compares windows of steps; bounded, however long the run.

    When the windows are twice as many as are compared, neighbours are joined, so a slow growth
    shows over a longer time. After an alarm the windows are doubled as well, so that a growth
    that goes on is told ever more rarely.
    """

    def __init__(self) -> None:
        """Begin without figures."""
        self.peaks: dict[int, int] = {}
        """Most CUDA bytes allocated, by the longest row's tokens rounded up to a power of 2."""
        self._window_steps = _WINDOW_STEPS
        self._windows: list[_Window] = []
        self._open: _Window | None = None
        self._is_warm = False

    def observe(
        self, step: int, reading: MemoryReading, longest: int
    ) -> tuple[EventKind, str] | None:
        """Take the figures after a step; return what is to be told.

        Args:
            step: for the message.
            reading: after the step; its peak is that of the step on CUDA.
            longest: tokens of the step's longest row.
        """
        window = _window_of(reading)
        if reading.reserved_bytes is not None:
            length_class = 1 << max(longest - 1, 0).bit_length()
            known = self.peaks.get(length_class, 0)
            self.peaks[length_class] = max(known, reading.peak_bytes)
        self._open = _join(self._open, window) if self._open else window
        if self._open.steps < self._window_steps:
            return None
        closed, self._open = self._open, None
        if not self._is_warm:
            # Libraries load, caches fill, the allocator meets its first shapes.
            self._is_warm = True
            return None
        return self._judge([*self._windows, closed], step)

    def _judge(self, windows: list[_Window], step: int) -> tuple[EventKind, str] | None:
        found = self._find(windows[-_WINDOWS:], step) if len(windows) >= _WINDOWS else None
        if found:
            windows = []
            self._window_steps *= 2
        elif len(windows) == 2 * _WINDOWS:
            windows = [_join(*windows[at : at + 2]) for at in range(0, len(windows), 2)]
            self._window_steps *= 2
        self._windows = windows
        return found

    def _find(self, recent: Sequence[_Window], step: int) -> tuple[EventKind, str] | None:
        allocated = [window.allocated_bytes for window in recent]
        reserved = [window.reserved_bytes for window in recent]
        num_steps = sum(window.steps for window in recent)
        if _grows_steadily(allocated) and all(a < b for a, b in pairwise(allocated)):
            return "memory_leak", (
                f"allocated memory grew from {_mb(allocated[0])} to {_mb(allocated[-1])} MB in "
                f"the {num_steps} steps up to {step} and goes on growing: tensors, or other "
                "objects of this process, are kept from step to step"
            )
        peak = max(window.peak_bytes for window in recent)
        is_new_peak = peak > 1.01 * recent[0].peak_bytes
        if _grows_steadily(reserved) and not is_new_peak and reserved[-1] > _WASTE * peak:
            return "fragmentation", (
                f"torch's reserved memory grew from {_mb(reserved[0])} to {_mb(reserved[-1])} MB "
                f"in the {num_steps} steps up to {step} while no step needed more than "
                f"{_mb(peak)} MB ({self._describe_peaks()}): free memory lies in pieces; set "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            )
        return None

    def _describe_peaks(self) -> str:
        parts = [f"up to {edge} tokens {_mb(peak)}" for edge, peak in sorted(self.peaks.items())]
        return ", ".join(parts)


def _window_of(reading: MemoryReading) -> _Window:
    return _Window(
        steps=1,
        allocated_bytes=reading.allocated_bytes,
        reserved_bytes=reading.reserved_bytes or 0,
        peak_bytes=reading.peak_bytes,
    )


def _join(earlier: _Window, later: _Window) -> _Window:
    return _Window(
        steps=earlier.steps + later.steps,
        allocated_bytes=min(earlier.allocated_bytes, later.allocated_bytes),
        reserved_bytes=max(earlier.reserved_bytes, later.reserved_bytes),
        peak_bytes=max(earlier.peak_bytes, later.peak_bytes),
    )


def _grows_steadily(values: Sequence[int]) -> bool:
    first, middle, last = values[0], values[len(values) // 2], values[-1]
    is_much = last - first >= max(_GROWTH_SHARE * first, _GROWTH_BYTES)
    is_spread = max(b - a for a, b in pairwise(values)) <= _ONE_RISE * (last - first)
    return is_much and is_spread and middle > first and last - middle >= _STEADY * (middle - first)


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f}"
