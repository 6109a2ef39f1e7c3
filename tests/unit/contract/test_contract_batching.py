from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.batching import (
    RUN_TOKENS,
    bucket_of,
    choose_bucket_edges,
    group_by_tokens,
    pad_rows,
    padded_token_count,
    padding_share,
)

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)
ROWS = st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=6)


def padded_tokens(lengths, edges):
    return int(np.asarray(edges)[bucket_of(np.array(lengths), np.array(edges))].sum())


def least_padded_tokens(lengths, num_buckets):
    """Try every choice of upper edges among the distinct lengths."""
    *lower, longest = sorted(set(lengths))
    chosen = combinations(lower, min(num_buckets, len(lower) + 1) - 1)
    return min(padded_tokens(lengths, [*edges, longest]) for edges in chosen)


def test_padded_token_count_is_rows_times_longest():
    assert padded_token_count([3, 9, 4]) == 27
    assert padded_token_count(np.array([5])) == 5
    assert padded_token_count([]) == 0


def test_padding_share_of_two_groups_worked_by_hand():
    lengths = np.array([1, 3, 4, 4])

    # 2 × 3 + 2 × 4 = 14 padded tokens, 12 of them real.
    assert padding_share(lengths, [np.array([0, 1]), np.array([2, 3])]) == pytest.approx(2 / 14)
    assert padding_share(lengths, []) == 0.0


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=14), num_buckets=st.integers(1, 5))
def test_choose_bucket_edges_is_as_good_as_trying_everything(lengths, num_buckets):
    edges = choose_bucket_edges(np.array(lengths), num_buckets=num_buckets)

    assert padded_tokens(lengths, edges) == least_padded_tokens(lengths, num_buckets)
    assert len(edges) == min(num_buckets, len(set(lengths)))
    assert (np.diff(edges) > 0).all()
    assert edges[-1] == max(lengths)


def test_choose_bucket_edges_example_and_refusals():
    assert choose_bucket_edges(np.array([3, 3, 4, 9]), num_buckets=2).tolist() == [4, 9]
    with pytest.raises(ValueError, match="got 0, 2"):
        choose_bucket_edges(np.array([], dtype=np.int64), num_buckets=2)
    with pytest.raises(ValueError, match="got 1, 0"):
        choose_bucket_edges(np.array([3]), num_buckets=0)


def test_bucket_of_takes_the_first_edge_that_holds_a_length():
    edges = np.array([4, 9])

    assert bucket_of(np.array([3, 9, 4, 5]), edges).tolist() == [0, 1, 0, 1]
    assert bucket_of(np.array([], dtype=np.int64), edges).tolist() == []
    with pytest.raises(ValueError, match="length 10 is over the last edge 9"):
        bucket_of(np.array([3, 10]), edges)


@given(lengths=LENGTHS, max_batch_tokens=st.integers(1, 120), max_batch_requests=st.integers(1, 8))
def test_group_by_tokens_keeps_every_row_once_and_no_group_is_over_a_limit(
    lengths, max_batch_tokens, max_batch_requests
):
    groups = group_by_tokens(
        lengths, max_batch_tokens=max_batch_tokens, max_batch_requests=max_batch_requests
    )

    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= max_batch_requests
        cost = padded_token_count([lengths[index] for index in group])
        assert cost <= max_batch_tokens or len(group) == 1


@given(lengths=LENGTHS, max_batch_tokens=st.integers(1, 120))
def test_group_by_tokens_runs_from_short_to_long_and_keeps_the_order_in_a_group(
    lengths, max_batch_tokens
):
    groups = group_by_tokens(lengths, max_batch_tokens=max_batch_tokens, max_batch_requests=32)

    assert all(group == sorted(group) for group in groups)
    ends = [(min(lengths[i] for i in g), max(lengths[i] for i in g)) for g in groups]
    assert all(longest <= shortest for (_, longest), (shortest, _) in pairwise(ends))


def cost_of(groups, lengths):
    padded = (padded_token_count([lengths[index] for index in group]) for group in groups)
    return sum(padded) + RUN_TOKENS * len(groups)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9),
    max_batch_tokens=st.integers(1, 150),
    max_batch_requests=st.integers(1, 6),
)
def test_no_other_way_to_cut_the_rows_in_order_of_length_is_cheaper(
    lengths, max_batch_tokens, max_batch_requests
):
    order = sorted(range(len(lengths)), key=lengths.__getitem__)

    def fits(group):
        padded = padded_token_count([lengths[index] for index in group])
        is_within = len(group) <= max_batch_requests and padded <= max_batch_tokens
        return is_within or len(group) == 1

    costs = []
    for cuts in product([False, True], repeat=len(order) - 1):
        ends = [at for at, is_cut in enumerate(cuts, 1) if is_cut]
        groups = [order[a:b] for a, b in pairwise([0, *ends, len(order)])]
        if all(map(fits, groups)):
            costs.append(cost_of(groups, lengths))

    found = group_by_tokens(
        lengths, max_batch_tokens=max_batch_tokens, max_batch_requests=max_batch_requests
    )

    assert cost_of(found, lengths) == min(costs)


def test_group_by_tokens_example_and_refusals():
    apart = group_by_tokens([8, 8, 90], max_batch_tokens=1000, max_batch_requests=32)
    assert apart == [[0, 1], [2]]
    assert group_by_tokens([3, 9, 4], max_batch_tokens=10, max_batch_requests=32) == [[0, 2], [1]]
    assert group_by_tokens([], max_batch_tokens=10, max_batch_requests=32) == []
    with pytest.raises(ValueError, match="limits must be >= 1: 0, 32"):
        group_by_tokens([3], max_batch_tokens=0, max_batch_requests=32)
    with pytest.raises(ValueError, match="limits must be >= 1: 10, 0"):
        group_by_tokens([3], max_batch_tokens=10, max_batch_requests=0)


@given(rows=ROWS, extra=st.none() | st.integers(0, 4))
def test_pad_rows_keeps_the_rows_and_masks_only_the_padding(rows, extra):
    longest = max(len(row) for row in rows)
    seq_len = None if extra is None else longest + extra

    values, mask = pad_rows(rows, pad_value=0, seq_len=seq_len)

    assert values.shape == mask.shape == (len(rows), longest if seq_len is None else seq_len)
    assert values.dtype == mask.dtype == np.int64
    assert [row[kept == 1].tolist() for row, kept in zip(values, mask, strict=True)] == rows
    assert mask.sum(axis=1).tolist() == [len(row) for row in rows]
    assert (values[mask == 0] == 0).all()


def test_pad_rows_refuses_no_rows_and_rows_that_do_not_fit():
    with pytest.raises(ValueError, match="empty batch"):
        pad_rows([], pad_value=0)
    with pytest.raises(ValueError, match="a row of 3 tokens does not fit seq_len 2"):
        pad_rows([[1, 2, 3]], pad_value=0, seq_len=2)
