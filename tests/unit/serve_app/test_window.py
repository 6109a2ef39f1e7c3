"""Laws of the window: which waiting texts run next, and in which groups."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.batching import padded_token_count
from serve_app.window import BatchLimits, form_window

limits_drawn = st.builds(
    BatchLimits,
    max_batch_tokens=st.integers(1, 64),
    max_batch_requests=st.integers(1, 8),
    window_batches=st.integers(1, 4),
    run_cost_tokens=st.integers(0, 200),
)
lengths_drawn = st.lists(st.integers(1, 80), max_size=60)


@given(lengths_drawn, limits_drawn)
def test_a_window_is_the_oldest_texts_each_once(lengths, limits):
    indices = sorted(index for group in form_window(lengths, limits) for index in group)

    assert indices == list(range(len(indices)))
    assert bool(indices) == bool(lengths)


@given(lengths_drawn, limits_drawn)
def test_no_group_is_over_a_limit_but_a_text_that_alone_is(lengths, limits):
    for group in form_window(lengths, limits):
        tokens = padded_token_count([lengths[index] for index in group])

        assert 1 <= len(group) <= limits.max_batch_requests
        assert tokens <= limits.max_batch_tokens or len(group) == 1


@given(lengths_drawn, limits_drawn)
def test_a_window_is_full_or_holds_all_that_waits(lengths, limits):
    taken = sum(len(group) for group in form_window(lengths, limits))

    if taken < len(lengths):
        tokens_with_next = sum(lengths[: taken + 1])
        assert taken == limits.window_rows or tokens_with_next > limits.window_tokens
    assert taken <= limits.window_rows
    assert taken <= 1 or sum(lengths[:taken]) <= limits.window_tokens


@given(lengths_drawn, limits_drawn)
def test_groups_run_in_the_order_of_their_oldest_text(lengths, limits):
    groups = form_window(lengths, limits)

    assert all(group == sorted(group) for group in groups)
    assert groups == sorted(groups)


@given(lengths_drawn, limits_drawn)
def test_groups_are_slices_of_the_sorted_window(lengths, limits):
    groups = form_window(lengths, limits)
    spans = sorted(
        (min(lengths[index] for index in group), max(lengths[index] for index in group))
        for group in groups
    )

    assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans))


def test_the_worked_example():
    limits = BatchLimits(max_batch_tokens=10, max_batch_requests=32, window_batches=3)

    assert form_window([9, 3, 8, 4], limits) == [[0], [1, 3], [2]]


def test_a_younger_text_that_would_fit_is_not_taken_in_place_of_an_older_one():
    limits = BatchLimits(max_batch_tokens=10, max_batch_requests=4, window_batches=1)

    assert form_window([6, 6, 3], limits) == [[0]]


@pytest.mark.parametrize(
    ("rows", "tokens", "batches"), [(8, 10, 2.0), (1, 30, 3.0), (0, 0, 0.0), (2, 5, 0.5)]
)
def test_work_is_counted_in_the_limit_that_binds(rows, tokens, batches):
    limits = BatchLimits(max_batch_tokens=10, max_batch_requests=4, window_batches=1)

    assert limits.batches_of(num_rows=rows, num_tokens=tokens) == batches


def test_the_dearer_a_run_the_fuller_the_batches():
    lengths = [20 + index % 16 for index in range(128)]
    groups = []
    for run_cost_tokens in (0, 27, 400):
        limits = BatchLimits(
            max_batch_tokens=2048,
            max_batch_requests=32,
            window_batches=4,
            run_cost_tokens=run_cost_tokens,
        )
        groups.append(len(form_window(lengths, limits)))

    assert groups == sorted(groups, reverse=True)
    assert groups[-1] == 4  # 128 texts, 32 each.
    assert groups[0] == 16  # One for each length: no padding.
