"""Whether a model is right as often as it is sure; pure numpy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.label_sets import BoolArray

NUM_BINS = 15


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """The answers of about equal confidence."""

    low: float
    """Least confidence, exclusive."""
    high: float
    """Greatest confidence, inclusive."""
    count: int
    """Answers in the bin, at least 1."""
    confidence: float
    """Their mean confidence."""
    accuracy: float
    """Share of them that is right."""


def calibration_bins(
    confidence: NDArray[np.float64], is_right: BoolArray, *, num_bins: int = NUM_BINS
) -> list[CalibrationBin]:
    """Return the bins that hold an answer, least sure first.

    Guo et al. 2017, "On Calibration of Modern Neural Networks", section 2: ``num_bins``
    equally wide bins ``((m-1)/M, m/M]`` (https://arxiv.org/abs/1706.04599).

    Args:
        confidence: ``float64 [n]``, 0 to 1: how sure the model was of each answer.
        is_right: ``bool [n]``.
        num_bins: M.
    """
    bins = np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    sure = np.bincount(bins, weights=confidence, minlength=num_bins)
    right = np.bincount(bins, weights=is_right.astype(np.float64), minlength=num_bins)
    return [
        CalibrationBin(
            low=place / num_bins,
            high=(place + 1) / num_bins,
            count=int(counts[place]),
            confidence=float(sure[place] / counts[place]),
            accuracy=float(right[place] / counts[place]),
        )
        for place in np.flatnonzero(counts).tolist()
    ]


def expected_calibration_error(
    confidence: NDArray[np.float64], is_right: BoolArray
) -> float | None:
    """Return the mean gap between confidence and accuracy, 0 to 1; 0 is calibrated.

    Guo et al. 2017, equation 3: each of :func:`calibration_bins` is weighted by its answers.
    None when there are no answers.
    """
    if not len(confidence):
        return None
    bins = calibration_bins(confidence, is_right)
    gaps = sum(each.count * abs(each.confidence - each.accuracy) for each in bins)
    return float(gaps / len(confidence))
