"""Live texts against the bundle's stored profile: warns, and decides nothing.

The population stability index of shares a (live) and e (training) over classes is
Σ (a - e) ln(a / e). Under 0.1 is read as no change, over 0.25 as a large one: Siddiqi, "Credit Risk
Scorecards" (2006). Equal distributions have by chance about (classes - 1) (1/n + 1/m): Yurdakul and
Naranjo, "Statistical properties of the population stability index", J. Risk Model Validation 14
(2020). With 77 labels and a thousand texts that alone is over 0.1, so it is taken off.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipeline.contract.profile import TrainingProfile
from serve_app.release.report import LiveProfile

MODERATE_PSI = 0.1
LARGE_PSI = 0.25
MIN_TEXTS = 1_000
_EMPTY = 0.5
"""Added to each class, so that the logarithm of an empty one is finite."""


class DriftLevel(StrEnum):
    """How far the live texts are from those of training."""

    NONE = "none"
    MODERATE = "moderate"
    LARGE = "large"
    INCONCLUSIVE = "inconclusive"
    """Too few texts."""


@dataclass(frozen=True, kw_only=True)
class DriftFinding:
    """One feature of one version's live texts."""

    version: str
    feature: str
    """``length``, ``unknown_tokens``, ``confidence`` or ``labels``."""
    level: DriftLevel
    psi: float | None
    """Population stability index, less what chance alone gives; None: too few texts."""
    num_samples: int
    """Texts, tokens or labels."""
    note: str
    """For people."""


def population_stability_index(live: Sequence[float], stored: Sequence[float]) -> float:
    """Return the index of two rows of counts over the same classes.

    Raises:
        ValueError: they have not the same number of classes, or one has no samples.
    """
    if len(live) != len(stored) or sum(live) <= 0 or sum(stored) <= 0:
        raise ValueError(f"need two rows of the same classes with samples, got {live}, {stored}")
    live_total = sum(live) + _EMPTY * len(live)
    stored_total = sum(stored) + _EMPTY * len(stored)
    index = 0.0
    for one, other in zip(live, stored, strict=True):
        actual, expected = (one + _EMPTY) / live_total, (other + _EMPTY) / stored_total
        index += (actual - expected) * math.log(actual / expected)
    return index


def chance_index(live: Sequence[float], stored: Sequence[float]) -> float:
    """Return about what the index is if both rows were drawn from one distribution."""
    num_classes = sum(1 for pair in zip(live, stored, strict=True) if any(pair))
    return max(0, num_classes - 1) * (1.0 / sum(live) + 1.0 / sum(stored))


def find_drift(live: LiveProfile, stored: TrainingProfile) -> tuple[DriftFinding, ...]:
    """Return the findings of one version's live texts, one for each feature."""
    num_texts = sum(live.length_counts)
    known = live.num_tokens - live.num_unknown_tokens
    stored_known = stored.num_tokens - stored.num_unknown_tokens
    labels = sorted({*live.label_counts, *stored.label_counts})
    rows = {
        "length": (live.length_counts, stored.length_counts),
        "unknown_tokens": (
            (live.num_unknown_tokens, known),
            (stored.num_unknown_tokens, stored_known),
        ),
        "confidence": (live.confidence_counts, stored.confidence_counts),
        "labels": (
            [live.label_counts.get(label, 0) for label in labels],
            [stored.label_counts.get(label, 0) for label in labels],
        ),
    }
    return tuple(
        _judge(live.version, feature, counts, num_texts=num_texts)
        for feature, counts in rows.items()
    )


def drift_warnings(findings: Sequence[DriftFinding]) -> tuple[str, ...]:
    """Return a sentence for each feature that has moved."""
    moved = (DriftLevel.MODERATE, DriftLevel.LARGE)
    return tuple(f"{item.version}: {item.note}" for item in findings if item.level in moved)


def _judge(
    version: str,
    feature: str,
    counts: tuple[Sequence[float], Sequence[float]],
    *,
    num_texts: int,
) -> DriftFinding:
    live, stored = counts
    num_samples = int(sum(live))
    name = feature.replace("_", " ")
    if num_texts < MIN_TEXTS or not num_samples or not sum(stored):
        note = f"{name}: {num_texts} of {MIN_TEXTS} texts that are needed"
        if num_samples and not sum(stored):
            note = f"{name}: the bundle has no stored profile of it"
        return DriftFinding(
            version=version,
            feature=feature,
            level=DriftLevel.INCONCLUSIVE,
            psi=None,
            num_samples=num_samples,
            note=note,
        )
    psi = max(0.0, population_stability_index(live, stored) - chance_index(live, stored))
    level = DriftLevel.NONE
    if psi >= MODERATE_PSI:
        level = DriftLevel.LARGE if psi >= LARGE_PSI else DriftLevel.MODERATE
    note = f"{name}: PSI {psi:.3f} against training, {level} (moderate from 0.1, large from 0.25)"
    return DriftFinding(
        version=version,
        feature=feature,
        level=level,
        psi=psi,
        num_samples=num_samples,
        note=note,
    )
