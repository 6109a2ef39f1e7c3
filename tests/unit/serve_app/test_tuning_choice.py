"""Choices by hand-computed cases."""

import numpy as np
import pytest
from tuning_samples import bounds_of, fit_of, lengths_of

from serve_app.tuning_choice import (
    choose,
    choose_budget,
    choose_cut,
    choose_rows,
    seconds_per_text,
)

LINEAR = fit_of(token=1e-3)


def test_a_text_costs_its_share_of_a_full_batch():
    fit = fit_of(run=1.0, token=0.01)

    seconds = seconds_per_text(
        fit, np.array([8, 128, 600]), max_batch_tokens=512, max_batch_requests=32
    )

    # 32 rows of 8 tokens, 4 of 128, and a text over the budget alone.
    np.testing.assert_allclose(seconds, [1 / 32 + 0.08, 1 / 4 + 1.28, 1 + 6.0])


def test_the_budget_is_the_smallest_within_5_percent_of_the_best():
    # A text of 64 tokens costs 6.4 ms · (1 + 1 / rows). Best are 32 rows, 1.03125; 5 % worse
    # is 1.0855, so 12 rows are enough and 8 are not: 768 tokens, 512 are not.
    fit = fit_of(run=6.4e-3, token=1e-4)

    assert choose_budget(fit, lengths_of([64]), bounds_of(max_seq_len=128)) == 768


def test_the_budget_holds_the_longest_text_where_batches_gain_nothing():
    assert choose_budget(LINEAR, lengths_of([8]), bounds_of(max_seq_len=300)) == 300


def test_the_budget_goes_no_further_than_was_measured():
    fit = fit_of(run=1.0)

    budget = choose_budget(
        fit, lengths_of([8]), bounds_of(max_seq_len=16, max_batch_rows=1024, most_tokens=500)
    )

    assert budget == 384


def test_the_cut_leaves_the_busier_lane_the_least():
    # Work 10, 20, 30, 40: cut at 20 leaves 30 and 70, at 30 it leaves 60 and 40.
    tokens = [10, 20, 30, 40]

    assert choose_cut(np.array(tokens) * 1.0, lengths_of(tokens), max_seq_len=40) == 30


def test_frequent_lengths_weigh_more_for_the_cut():
    # Work 10 · 8, 20, 30, 40: cut at 10 leaves 80 and 90.
    tokens = [10, 20, 30, 40]

    cut = choose_cut(np.array(tokens) * 1.0, lengths_of(tokens, [8, 1, 1, 1]), max_seq_len=40)

    assert cut == 10


@pytest.mark.parametrize(
    ("length", "cut", "short_share"), [(64, 64, 1.0), (255, 255, 1.0), (256, 128, 0.0)]
)
def test_texts_of_one_length_all_go_to_one_lane_and_it_is_said(length, cut, short_share):
    choice = choose([LINEAR], lengths=lengths_of([length]), bounds=bounds_of(cpus=1))

    assert choice.short_max_tokens == cut
    assert (choice.short.texts_share, choice.long.texts_share) == (short_share, 1 - short_share)
    assert choice.short.load_s + choice.long.load_s == pytest.approx(length * 1e-3)
    assert "cannot be parted" in choice.reasons.short_max_tokens
    assert choice.texts_per_s == pytest.approx(1000 / length)


@pytest.mark.parametrize(("tokens", "rows"), [([8], 32), ([128], 4), ([256], 2)])
def test_texts_of_one_length_are_collected_until_the_budget_is_full(tokens, rows):
    found = choose_rows(
        fit_of(run=1e-3, token=1e-4),
        lengths_of(tokens),
        cut=100,
        budget=512,
        bounds=bounds_of(max_seq_len=256),
    )

    assert found == rows


def test_mixed_texts_are_collected_in_larger_numbers_so_that_like_ones_meet():
    lengths = lengths_of(list(range(16, 257, 8)))
    fit = fit_of(run=2e-3, token=1e-4)

    rows = choose_rows(fit, lengths, cut=128, budget=512, bounds=bounds_of())

    assert rows > 512 // 136


@pytest.mark.parametrize(
    ("with_two", "threads"),
    [
        # Each text 25 tokens in the mean; the short lane has 60 of 100. One thread each: 15 ms
        # for the busier lane, 66.7 texts/s. Two threads each on 2 CPUs take turns: all the
        # work, 25 ms · speed-up, must fit on them.
        (0.5e-3, 2),
        (0.6e-3, 2),
        (0.7e-3, 1),
    ],
)
def test_threads_are_those_that_bear_most_texts_and_on_a_tie_answer_soonest(with_two, threads):
    fits = [LINEAR, fit_of(token=with_two, threads=2)]

    choice = choose(
        fits, lengths=lengths_of([10, 20, 30, 40]), bounds=bounds_of(cpus=2, max_seq_len=40)
    )

    assert choice.threads_per_replica == threads
    assert "66.7 with 1" in choice.reasons.threads_per_replica


def test_loads_shares_and_warm_up_are_those_of_the_lanes():
    choice = choose(
        [LINEAR], lengths=lengths_of([10, 20, 30, 40]), bounds=bounds_of(max_seq_len=40)
    )

    assert (choice.short_max_tokens, choice.max_batch_tokens) == (30, 40)
    assert (choice.short.texts_share, choice.long.texts_share) == (0.75, 0.25)
    assert choice.short.load_s == pytest.approx(0.015)
    assert choice.long.load_s == pytest.approx(0.010)
    assert choice.texts_per_s == pytest.approx(1 / 0.015)
    assert choice.short.warm_up[0] == (1, 3)
    assert choice.long.warm_up == ((1, 31), (1, 40))
    assert "60% of the work, the long lane 40%" in choice.reasons.short_max_tokens


@pytest.mark.parametrize("tokens", [[0, 5], [5, 257]])
def test_lengths_that_cannot_be_served_are_refused(tokens):
    with pytest.raises(ValueError, match="lengths in 1 … 256"):
        choose([LINEAR], lengths=lengths_of(tokens), bounds=bounds_of())


def test_no_fit_is_refused():
    with pytest.raises(ValueError, match="need fits"):
        choose([], lengths=lengths_of([5]), bounds=bounds_of())
