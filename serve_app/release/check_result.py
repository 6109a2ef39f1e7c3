"""What a check found: one of three verdicts, with the numbers behind it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a check says about the candidate."""

    PASS = "pass"
    """Shown to be within the threshold."""
    FAIL = "fail"
    """Shown to be beyond it."""
    INCONCLUSIVE = "inconclusive"
    """Neither is shown; there is no step."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check at one moment."""

    name: str
    """Such as ``errors`` or ``p99.short``."""
    verdict: Verdict
    is_required: bool
    """Whether a step needs it to pass; it rolls back if it fails in any case."""
    reason: str
    """The verdict in a sentence for people."""
    test: str
    """The statistical test."""
    measure: str
    """What ``estimate``, ``low``, ``high`` and ``threshold`` measure."""
    threshold: float
    estimate: float | None = None
    low: float | None = None
    """The interval that must lie beyond the threshold to fail…"""
    high: float | None = None
    alpha: float = 0.0
    """…and the chance that it ever misses the truth in this step."""
    pass_high: float | None = None
    """End of the narrower interval that must lie within the threshold to pass."""
    candidate: float | None = None
    """The candidate's own figure."""
    stable: float | None = None
    """The stable version's."""
    num_candidate: int = 0
    """Samples."""
    num_stable: int = 0
    window_start: float = 0.0
    """Seconds since 1970."""
    window_end: float = 0.0


@dataclass(frozen=True, kw_only=True)
class HardLimit:
    """A limit that was passed, which needs no test."""

    name: str
    """``error_burst`` or ``crash_loop``."""
    reason: str
    """What happened, with the numbers, for people."""
    value: float
    threshold: float
    window_s: float
