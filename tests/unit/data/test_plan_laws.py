from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.batching import padded_token_count, padding_share
from pipeline.data.plan import PlanSettings, build_epoch_plan, rank_slice

lengths_of_rows = st.lists(st.integers(1, 64), min_size=1, max_size=120).map(np.array)
settings_of_plans = st.builds(
    PlanSettings,
    batch_rows=st.integers(1, 9),
    window_batches=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    longest_first=st.booleans(),
)


def batches_of(plan):
    return [plan.batch(step).tolist() for step in range(plan.num_batches)]


def settings_with(**changes):
    values = {"batch_rows": 4, "window_batches": 3, "seed": 1, "longest_first": False}
    return PlanSettings(**values | changes)


@given(lengths_of_rows, settings_of_plans, st.integers(0, 50))
def test_epoch_holds_every_row_once_in_batches_of_one_size_but_one(lengths, settings, epoch):
    batches = batches_of(build_epoch_plan(lengths, epoch=epoch, settings=settings))

    assert sorted(chain(*batches)) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // settings.batch_rows)
    assert sum(len(batch) != settings.batch_rows for batch in batches) <= 1


@given(lengths_of_rows, settings_of_plans, st.integers(0, 50))
def test_equal_arguments_give_the_equal_plan(lengths, settings, epoch):
    first = build_epoch_plan(lengths, epoch=epoch, settings=settings)
    second = build_epoch_plan(lengths.copy(), epoch=epoch, settings=settings)

    assert batches_of(first) == batches_of(second)


@given(lengths_of_rows, settings_of_plans)
def test_longest_first_puts_the_costliest_batch_first(lengths, settings):
    plan = build_epoch_plan(lengths, epoch=0, settings=settings)
    costs = [padded_token_count(lengths[batch]) for batch in batches_of(plan)]

    assert not settings.longest_first or costs[0] == max(costs)


@given(lengths_of_rows, settings_of_plans, st.integers(1, 7))
def test_ranks_cover_a_batch_once_and_differ_by_at_most_one_row(lengths, settings, world_size):
    plan = build_epoch_plan(lengths, epoch=0, settings=settings)

    for step in range(plan.num_batches):
        batch = plan.batch(step)
        slices = [
            rank_slice(batch, lengths, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        sizes = [len(rows) for rows in slices]
        assert sorted(np.concatenate(slices)) == sorted(batch)
        assert max(sizes) - min(sizes) <= 1


def test_order_changes_with_epoch_and_seed():
    lengths = np.arange(1, 41)
    plans = [
        batches_of(build_epoch_plan(lengths, epoch=epoch, settings=settings_with(seed=seed)))
        for epoch, seed in ((0, 1), (1, 1), (0, 2))
    ]

    assert plans[0] != plans[1]
    assert plans[0] != plans[2]


def test_order_is_the_same_on_every_machine():
    lengths = np.array([3, 9, 4, 8, 5, 7, 6])
    settings = settings_with(batch_rows=2, window_batches=2)

    plan = build_epoch_plan(lengths, epoch=0, settings=settings)

    assert batches_of(plan) == [[6, 3], [0, 2], [4, 5], [1]]


def test_window_over_the_whole_epoch_sorts_all_rows():
    lengths = np.array([7, 1, 5, 3, 2, 6])
    settings = settings_with(batch_rows=2, window_batches=99)

    batches = batches_of(build_epoch_plan(lengths, epoch=3, settings=settings))

    assert sorted(sorted(lengths[batch].tolist()) for batch in batches) == [[1, 2], [3, 5], [6, 7]]


def test_wider_windows_pad_less():
    lengths = np.random.default_rng(0).integers(4, 128, 4000)
    shares = [
        padding_share(lengths, [plan.batch(step) for step in range(plan.num_batches)])
        for window in (1, 4, 16)
        for plan in [
            build_epoch_plan(lengths, epoch=0, settings=settings_with(window_batches=window))
        ]
    ]

    assert shares[0] > 2 * shares[1] > 4 * shares[2]


def test_rank_slice_deals_like_lengths_to_every_rank():
    lengths = np.array([0, 0, 0, 0, 0, 9, 3, 4])
    batch = np.array([5, 6, 7])

    assert rank_slice(batch, lengths, rank=0, world_size=2).tolist() == [6, 5]
    assert rank_slice(batch, lengths, rank=1, world_size=2).tolist() == [7]


def test_impossible_arguments_are_refused():
    plan = build_epoch_plan(np.array([1, 2]), epoch=0, settings=settings_with())

    with pytest.raises(IndexError, match="step 1 of an epoch with 1 batches"):
        plan.batch(1)
    with pytest.raises(ValueError, match="need rows"):
        build_epoch_plan(np.zeros(0, dtype=np.int64), epoch=0, settings=settings_with())
    with pytest.raises(ValueError, match="rank 2 is not in a world of 2"):
        rank_slice(plan.batch(0), np.array([1, 2]), rank=2, world_size=2)
    with pytest.raises(ValueError, match="read-only"):
        plan.batch(0)[0] = 5
