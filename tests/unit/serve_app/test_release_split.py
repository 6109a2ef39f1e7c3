import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.release.split import is_candidate_key, is_shadowed, key_point

KEYS = [f"user-{number}" for number in range(20_000)]


@pytest.mark.parametrize("salt", ["", "r1", "20261202-101500-ab12cd"])
@pytest.mark.parametrize("weight", [0.05, 0.25, 0.5])
def test_the_split_is_within_half_a_point_over_20_000_keys(salt, weight):
    share = sum(is_candidate_key(key, salt=salt, weight=weight) for key in KEYS) / len(KEYS)

    assert abs(share - weight) <= (0.005 if weight == 0.05 else 0.01)


@given(st.text(), st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_rising_weight_keeps_every_key_that_it_has(salt, key, one, other):
    low, high = sorted((one, other))

    if is_candidate_key(key, salt=salt, weight=low):
        assert is_candidate_key(key, salt=salt, weight=high)
    assert 0.0 <= key_point(salt, key) < 1.0
    assert is_candidate_key(key, salt=salt, weight=1.0)
    assert not is_candidate_key(key, salt=salt, weight=0.0)


def test_another_salt_takes_other_keys():
    first, second = (
        {key for key in KEYS if is_candidate_key(key, salt=salt, weight=0.05)} for salt in "ab"
    )

    assert len(first & second) < 0.1 * len(first)
    assert key_point("ab", "c") != key_point("a", "bc")


def test_shadowing_does_not_depend_on_who_answers():
    taken = [key for key in KEYS if is_candidate_key(key, salt="r", weight=0.25)]
    share = sum(is_shadowed(key, salt="r", share=0.2) for key in taken) / len(taken)

    assert abs(share - 0.2) < 0.02


@pytest.mark.parametrize("key", ["", "x" * 1_000_000, "\ud800", "\x00", "ключ"])
def test_any_header_is_a_key(key):
    assert 0.0 <= key_point("salt", key) < 1.0


def test_a_point_is_the_same_for_ever():
    assert key_point("r1", "user-1") == pytest.approx(POINT, abs=1e-15)


POINT = 0.36384963944158166
