import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.calibration import calibration_bins, expected_calibration_error

ANSWERS = st.integers(1, 60).flatmap(
    lambda count: st.tuples(
        arrays(np.float64, count, elements=st.floats(0, 1)), arrays(np.bool_, count)
    )
)


def test_expected_calibration_error_worked_by_hand():
    confidence, is_right = np.array([0.9, 0.9, 0.6]), np.array([True, False, True])

    # Bin of 0.9: two rows, accuracy 1/2, gap 0.4; bin of 0.6: one row, right, gap 0.4.
    assert expected_calibration_error(confidence, is_right) == pytest.approx(0.4)


def test_sure_and_right_is_perfectly_calibrated():
    assert expected_calibration_error(np.array([1.0]), np.array([True])) == 0.0


def test_without_answers_there_is_no_error_and_no_bin():
    nothing = np.array([]), np.array([], dtype=bool)

    assert expected_calibration_error(*nothing) is None
    assert calibration_bins(*nothing) == []


def test_a_bin_holds_its_upper_end_and_not_its_lower():
    found = calibration_bins(
        np.array([0.0, 0.5, 0.75, 1.0]), np.array([False, True, False, True]), num_bins=4
    )

    ends = [(each.low, each.high, each.count, each.accuracy) for each in found]
    assert ends == [(0.0, 0.25, 1, 0.0), (0.25, 0.5, 1, 1.0), (0.5, 0.75, 1, 0.0), (0.75, 1, 1, 1)]


@pytest.mark.slow
@given(ANSWERS)
def test_bins_hold_every_answer_once_and_the_error_is_a_share(answers):
    confidence, is_right = answers

    found = calibration_bins(confidence, is_right)

    assert sum(each.count for each in found) == len(confidence)
    hits = sum(each.accuracy * each.count for each in found)
    assert hits == pytest.approx(is_right.sum())
    assert 0.0 <= expected_calibration_error(confidence, is_right) <= 1.0
