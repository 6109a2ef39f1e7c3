import math
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.batching import (
    padded_token_count,
    padding_share,
)
from pipeline.data.plan import (
    PlanSettings,
    RunPlan,
    build_epoch_plan,
    count_steps,
    rank_slice,
)

lengths_of_rows = st.lists(st.integers(1, 64), min_size=1, max_size=120).map(np.array)
settings_of_plans = st.builds(
    PlanSettings,
    batch_rows=st.integers(1, 9),
    max_batch_tokens=st.none() | st.integers(1, 200),
    window_batches=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    longest_first=st.booleans(),
)


def batches_of(plan):
    return [plan.batch(step).tolist() for step in range(plan.num_batches)]


def slices_of(batch, lengths, world_size):
    return [
        rank_slice(batch, lengths, rank=rank, world_size=world_size) for rank in range(world_size)
    ]


def settings_with(**changes):
    values = {"batch_rows": 4, "window_batches": 3, "seed": 1, "longest_first": False}
    return PlanSettings(**values | changes)


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans, st.integers(0, 50))
def test_every_epoch_holds_every_row_once(lengths, settings, epoch):
    batches = batches_of(build_epoch_plan(lengths, epoch=epoch, settings=settings))

    assert sorted(chain(*batches)) == list(range(len(lengths)))


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans, st.integers(0, 50))
def test_without_a_token_limit_all_batches_but_one_are_full(lengths, settings, epoch):
    by_rows = replace(settings, max_batch_tokens=None)

    sizes = list(map(len, batches_of(build_epoch_plan(lengths, epoch=epoch, settings=by_rows))))

    assert len(sizes) == -(-len(lengths) // settings.batch_rows)
    assert max(sizes) <= settings.batch_rows
    assert sum(size != settings.batch_rows for size in sizes) <= 1


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans, st.integers(0, 50))
def test_no_batch_is_over_a_limit_but_single_rows(lengths, settings, epoch):
    batches = batches_of(build_epoch_plan(lengths, epoch=epoch, settings=settings))

    limit = settings.max_batch_tokens or math.inf
    assert all(len(batch) <= settings.batch_rows for batch in batches)
    assert all(len(batch) == 1 or padded_token_count(lengths[batch]) <= limit for batch in batches)


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans, st.integers(0, 50))
def test_batches_of_one_window_are_those_of_the_greedy_grouping(lengths, settings, epoch):
    tokens = settings.max_batch_tokens or 1000
    settings = replace(settings, max_batch_tokens=tokens, window_batches=len(lengths))

    batches = batches_of(build_epoch_plan(lengths, epoch=epoch, settings=settings))

    groups = [[]]
    for length in sorted(lengths.tolist()):
        is_full = len(groups[-1]) == settings.batch_rows
        if groups[-1] and (is_full or (len(groups[-1]) + 1) * length > tokens):
            groups.append([])
        groups[-1].append(length)
    assert sorted(sorted(lengths[rows].tolist()) for rows in batches) == sorted(groups)


@given(lengths_of_rows, settings_of_plans, st.integers(0, 50))
def test_unreachable_token_limit_changes_nothing(lengths, settings, epoch):
    plans = [
        build_epoch_plan(
            lengths, epoch=epoch, settings=replace(settings, max_batch_tokens=max_batch_tokens)
        )
        for max_batch_tokens in (None, 10**9)
    ]

    assert batches_of(plans[0]) == batches_of(plans[1])


@pytest.mark.slow
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


@pytest.mark.slow
@given(lengths_of_rows, st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_sorting_in_windows_never_pads_more_than_the_same_shuffle_unsorted(lengths, rows, seed):
    # Where a short batch is left, it may by chance cost less unsorted.
    lengths = np.resize(lengths, -(-len(lengths) // rows) * rows)
    settings = settings_with(batch_rows=rows, seed=seed)

    shares = [
        padding_share(lengths, batches_of(build_epoch_plan(lengths, epoch=0, settings=chosen)))
        for chosen in (settings, replace(settings, window_batches=1))
    ]

    assert shares[0] <= shares[1]


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans, st.integers(1, 4))
def test_every_step_is_reached_alone_as_in_turn(lengths, settings, epochs):
    epoch_steps = count_steps(lengths, epochs=epochs, settings=settings)
    in_turn = [
        (epoch, batch)
        for epoch in range(epochs)
        for batch in batches_of(build_epoch_plan(lengths, epoch=epoch, settings=settings))
    ]

    run_plan = RunPlan(lengths, epoch_steps=epoch_steps, settings=settings)
    backwards = [run_plan.batch(step) for step in range(run_plan.total_steps, 0, -1)]

    assert [batch.step for batch in backwards[::-1]] == list(range(1, len(in_turn) + 1))
    assert [(batch.epoch, batch.rows.tolist()) for batch in backwards[::-1]] == in_turn


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans, st.integers(1, 7))
def test_ranks_cover_a_batch_once_and_differ_by_at_most_one_row(lengths, settings, world_size):
    plan = build_epoch_plan(lengths, epoch=0, settings=settings)

    for step in range(plan.num_batches):
        slices = slices_of(plan.batch(step), lengths, world_size)
        sizes = [len(rows) for rows in slices]
        assert sorted(np.concatenate(slices)) == sorted(plan.batch(step))
        assert max(sizes) - min(sizes) <= 1


@given(lengths_of_rows, st.integers(1, 9))
def test_tokens_of_two_ranks_differ_by_less_than_a_row(lengths, world_size):
    tokens = [
        int(lengths[rows].sum()) for rows in slices_of(np.arange(len(lengths)), lengths, world_size)
    ]

    is_full = len(lengths) % world_size == 0
    bound = lengths.max() - lengths.min() if is_full else lengths.max()
    assert max(tokens) - min(tokens) <= bound


@given(lengths_of_rows, st.integers(1, 9))
def test_rank_slice_runs_from_short_to_long(lengths, world_size):
    for rows in slices_of(np.arange(len(lengths)), lengths, world_size):
        assert np.all(np.diff(lengths[rows]) >= 0)


def test_one_worker_takes_the_whole_batch_from_short_to_long():
    lengths = np.array([7, 3, 9, 3])

    assert rank_slice(np.array([2, 3, 0, 1]), lengths, rank=0, world_size=1).tolist() == [
        3,
        1,
        0,
        2,
    ]


def test_with_fewer_rows_than_workers_the_first_workers_get_them():
    slices = slices_of(np.array([0, 1]), np.array([5, 6]), 4)

    assert [rows.tolist() for rows in slices] == [[1], [0], [], []]


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


def test_rank_slice_deals_like_tokens_to_every_rank():
    lengths = np.array([0, 0, 0, 0, 0, 9, 3, 4])
    batch = np.array([5, 6, 7])

    assert rank_slice(batch, lengths, rank=0, world_size=2).tolist() == [6, 7]
    assert rank_slice(batch, lengths, rank=1, world_size=2).tolist() == [5]


def test_token_limit_cuts_as_in_the_example():
    lengths = np.array([3, 9, 4, 8])
    settings = settings_with(batch_rows=2, window_batches=2, max_batch_tokens=9)

    batches = batches_of(build_epoch_plan(lengths, epoch=0, settings=settings))

    assert sorted(map(sorted, batches)) == [[0, 2], [1], [3]]


def test_every_epoch_counts_its_short_batch():
    steps = [count_steps(np.ones(n, int), epochs=2, settings=settings_with()) for n in (18, 16)]

    assert steps == [(5, 5), (4, 4)]


def test_steps_of_an_epoch_may_depend_on_it_under_a_token_limit():
    lengths = np.random.default_rng(0).integers(1, 40, 60)
    settings = settings_with(max_batch_tokens=60, window_batches=1)

    epoch_steps = count_steps(lengths, epochs=6, settings=settings)

    assert len(set(epoch_steps)) > 1
    assert epoch_steps[:3] == count_steps(lengths, epochs=3, settings=settings)


def test_impossible_arguments_are_refused():
    plan = build_epoch_plan(np.array([1, 2]), epoch=0, settings=settings_with())
    run_plan = RunPlan(np.array([1, 2]), epoch_steps=(1, 1), settings=settings_with())

    with pytest.raises(IndexError, match="step 1 of an epoch with 1 batches"):
        plan.batch(1)
    for step in (0, 3):
        with pytest.raises(IndexError, match=f"step {step} of a job with steps 1 to 2"):
            run_plan.batch(step)
    for sizes in ({"batch_rows": 0}, {"window_batches": 0}, {"max_batch_tokens": 0}):
        with pytest.raises(ValueError, match="need rows and sizes >= 1"):
            count_steps(np.array([1, 2]), epochs=1, settings=settings_with(**sizes))
    with pytest.raises(ValueError, match="need rows"):
        build_epoch_plan(np.zeros(0, dtype=np.int64), epoch=0, settings=settings_with())
    with pytest.raises(ValueError, match="rank 2 is not in a world of 2"):
        rank_slice(plan.batch(0), np.array([1, 2]), rank=2, world_size=2)
    with pytest.raises(ValueError, match="read-only"):
        plan.batch(0)[0] = 5
