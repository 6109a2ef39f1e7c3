import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.export.exclusion_search import find_exclusions


def test_nothing_is_kept_float_where_int8_passes_as_it_is() -> None:
    assert find_exclusions(["a", "b"], lambda kept: True) == ()


def test_a_harmless_name_before_the_guilty_one_is_taken_out_again() -> None:
    assert find_exclusions(["a", "b", "c", "d"], lambda kept: "b" in kept) == ("b",)


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c", "d", "e"]])
def test_no_list_is_found_where_none_passes(names) -> None:
    tried: list[int] = []

    def passes(kept) -> bool:
        tried.append(len(kept))
        return False

    assert find_exclusions(names, passes) is None
    assert max(tried) == len(names) - 1


@given(guilty=st.sets(st.integers(0, 35), min_size=1, max_size=6))
def test_exactly_the_guilty_are_found_in_few_trials(guilty) -> None:
    ranked = [str(number) for number in range(37)]
    needed = {str(number) for number in guilty}
    trials: list[int] = []

    def passes(kept) -> bool:
        trials.append(1)
        return needed <= set(kept)

    found = find_exclusions(ranked, passes)

    assert found is not None
    assert set(found) == needed
    assert len(trials) <= 1 + 7 + 6 + max(guilty)
