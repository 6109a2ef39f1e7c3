"""Running counts of what ingresses report; each holds bounded memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.contract.profile import NUM_CONFIDENCE_CLASSES
from serve_app.release.report import Comparison, LiveProfile, TrafficCell
from serve_app.release.time_histogram import TimeHistogram

_MOST_NAMES = 1_000
"""Labels of which counts are kept; what comes after them is counted together."""
_OTHERS = "(others)"
_PROFILE_TEXTS = 20_000
"""Texts after which the older half of a profile is forgotten."""


@dataclass(kw_only=True)
class LaneTally:
    """Users' requests to one version in one lane."""

    num_requests: int = 0
    num_errors: int = 0
    times: TimeHistogram = field(default_factory=TimeHistogram)

    def add(self, cell: TrafficCell) -> None:
        """Count a report's cell."""
        self.num_requests += cell.num_requests
        self.num_errors += cell.num_errors
        self.times.add(cell.latencies_ms)


@dataclass(kw_only=True)
class PairTally:
    """A candidate's time against a stable one's of the same second and ingress."""

    num_pairs: int = 0
    num_slower: int = 0
    """Pairs whose candidate's time is over the stable one's times the threshold."""

    def add(self, candidate: Sequence[float], stable: Sequence[float], *, ratio: float) -> None:
        """Pair as many times as both have; none is used twice, so the pairs are independent."""
        num = min(len(candidate), len(stable))
        for index in range(num):
            one = candidate[index * len(candidate) // num]
            other = stable[index * len(stable) // num]
            self.num_slower += one > ratio * other
        self.num_pairs += num


@dataclass(kw_only=True)
class ComparisonTally:
    """Compared answers of one group."""

    num_comparisons: int = 0
    num_flips: int = 0
    num_shifts: int = 0
    num_failures: int = 0

    def add(self, item: Comparison, *, tolerance: float) -> None:
        """Count one text's answers."""
        self.num_comparisons += 1
        self.num_failures += item.candidate_failed
        self.num_flips += is_flip(item, tolerance=tolerance)
        self.num_shifts += not item.candidate_failed and item.shift > tolerance

    @property
    def num_answered(self) -> int:
        """Texts that both versions answered."""
        return self.num_comparisons - self.num_failures


@dataclass(kw_only=True)
class FeedbackTally:
    """Labels that users gave for one version's answers."""

    num_labels: int = 0
    num_wrong: int = 0


@dataclass(kw_only=True)
class ProfileTally:
    """Texts that one version answered lately: the last 20,000 to 40,000."""

    now: LiveProfile
    before: LiveProfile | None = None

    def add(self, report: LiveProfile) -> None:
        """Count a report's texts."""
        self.now = merge_profiles(self.now, report)
        if sum(self.now.length_counts) >= _PROFILE_TEXTS:
            self.before, self.now = self.now, empty_profile(report.version)

    def total(self) -> LiveProfile:
        """Return the counts of both halves."""
        return self.now if self.before is None else merge_profiles(self.before, self.now)


def is_flip(item: Comparison, *, tolerance: float) -> bool:
    """Return whether the labels differ by more than one version may differ from itself.

    In a near tie the batch decides; then neither the probabilities nor the scores of the two
    labels are far apart. Scores are looked at as well, since versions that know none of each
    other's labels have no shift.
    """
    moved = max(item.shift, abs(item.stable_score - item.candidate_score))
    return item.is_flip and not item.candidate_failed and moved > tolerance


def empty_profile(version: str) -> LiveProfile:
    """Return the profile of no text."""
    return LiveProfile(
        version=version,
        length_counts=(),
        num_tokens=0,
        num_unknown_tokens=0,
        confidence_counts=(0,) * NUM_CONFIDENCE_CLASSES,
        label_counts={},
    )


def merge_profiles(first: LiveProfile, second: LiveProfile) -> LiveProfile:
    """Return the sums of two profiles of one version."""
    return LiveProfile(
        version=first.version,
        length_counts=_sums(first.length_counts, second.length_counts),
        num_tokens=first.num_tokens + second.num_tokens,
        num_unknown_tokens=first.num_unknown_tokens + second.num_unknown_tokens,
        confidence_counts=_sums(first.confidence_counts, second.confidence_counts),
        label_counts=_merge_names(first.label_counts, second.label_counts),
    )


def bounded_name(name: str, known: Mapping[str, object]) -> str:
    """Return the name to count under: its own, unless very many others are counted already."""
    return name if name in known or len(known) < _MOST_NAMES else _OTHERS


def _sums(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    length = max(len(first), len(second))
    padded = ((*counts, *(0,) * (length - len(counts))) for counts in (first, second))
    return tuple(one + other for one, other in zip(*padded, strict=True))


def _merge_names(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    merged = dict(first)
    for name, count in second.items():
        place = bounded_name(name, merged)
        merged[place] = merged.get(place, 0) + count
    return merged
