from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.augment import MAX_SPAN_TOKENS, Augmentation, augment_rows, row_keys

MASK = 4
OFF = Augmentation(
    token_dropout=0.0,
    span_masking=0.0,
    mean_span_tokens=3.0,
    mask_token_id=MASK,
    special_token_ids=(0, 1, 2, 3, MASK),
    seed=7,
)
rows_of_ids = st.lists(st.integers(0, 30), min_size=1, max_size=80).map(
    lambda ids: np.array(ids, dtype=np.int32)
)
augmentations = st.builds(
    lambda dropout, share, mean: replace(
        OFF, token_dropout=dropout, span_masking=share, mean_span_tokens=mean
    ),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(1, 5),
)
seeds = st.integers(0, 2**32 - 1)


def key_of(row_id=0, *, seed=7, epoch=0, window=0):
    return row_keys(seed, epoch, np.array([row_id]), np.array([window]))


def augment_row(ids, key, settings):
    return augment_rows([ids], key, settings)[0]


def augment_many(settings, *, rows, tokens):
    """Return which tokens of many rows of equal length are masked, bool [rows, tokens]."""
    ids = np.arange(10, 10 + tokens, dtype=np.int32)
    keys = row_keys(settings.seed, 0, np.arange(rows), np.zeros(rows, dtype=np.int64))
    return np.array(augment_rows([ids] * rows, keys, settings)) == MASK


def runs_of(is_masked):
    """Return the lengths of the runs of masked tokens in a row."""
    edges = np.flatnonzero(np.diff(np.r_[0, is_masked.astype(int), 0]))
    return np.diff(edges)[::2]


@pytest.mark.slow
@given(rows_of_ids, augmentations, seeds)
def test_tokens_stay_or_become_the_mask_and_special_ones_stay(ids, settings, seed):
    before = ids.copy()

    augmented = augment_row(ids, key_of(seed=seed), settings)

    assert augmented.dtype == np.int32
    assert np.all((augmented == ids) | (augmented == MASK))
    is_special = np.isin(ids, settings.special_token_ids)
    assert np.array_equal(augmented[is_special], ids[is_special])
    assert np.array_equal(ids, before)


@given(rows_of_ids, st.floats(0, 1), st.floats(1, 5), seeds)
def test_spans_mask_the_share_rounded_up_or_down(ids, share, mean, seed):
    settings = replace(OFF, span_masking=share, mean_span_tokens=mean)

    augmented = augment_row(ids, key_of(seed=seed), settings)

    wanted = share * int(np.sum(ids > MASK))
    assert abs(int(np.sum(augmented != ids)) - wanted) < 1


@pytest.mark.slow
@given(rows_of_ids, augmentations)
def test_equal_keys_draw_the_same(ids, settings):
    first, second = (augment_row(ids, key_of(), settings) for _ in range(2))

    assert np.array_equal(first, second)


@pytest.mark.slow
@given(st.lists(rows_of_ids, max_size=6), augmentations)
def test_rows_beside_a_row_change_nothing_in_it(rows, settings):
    keys = row_keys(7, 0, np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64))

    together = augment_rows(rows, keys, settings)

    assert [row.tolist() for row in together] == [
        augment_row(ids, key_of(row), settings).tolist() for row, ids in enumerate(rows)
    ]


def test_dropping_all_or_nothing_does_so():
    ids = np.array([2, 10, 11, 3, 12, 3], dtype=np.int32)

    all_dropped = augment_row(ids, key_of(), replace(OFF, token_dropout=1.0))
    all_in_spans = augment_row(ids, key_of(), replace(OFF, span_masking=1.0))

    assert all_dropped.tolist() == all_in_spans.tolist() == [2, MASK, MASK, 3, MASK, 3]
    assert augment_row(ids, key_of(), OFF).tolist() == ids.tolist()


def test_keys_differ_by_seed_epoch_row_and_window_and_not_by_the_rows_beside():
    rows, windows = np.meshgrid(np.arange(40), np.arange(3), indexing="ij")
    keys = [
        row_keys(seed, epoch, rows.ravel(), windows.ravel())
        for seed in range(4)
        for epoch in range(4)
    ]

    assert len(np.unique(keys)) == 4 * 4 * 40 * 3
    alone = row_keys(3, 2, np.array([39]), np.array([1]))
    assert alone[0] == keys[3 * 4 + 2].reshape(40, 3)[39, 1]


def test_draws_are_the_same_on_every_machine():
    ids = np.arange(10, 30, dtype=np.int32)
    settings = replace(OFF, token_dropout=0.1, span_masking=0.3)

    augmented = augment_row(ids, key_of(1000, epoch=3, window=1), settings)

    assert np.flatnonzero(augmented == MASK).tolist() == [2, 5, 6, 9, 10, 12, 19]


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_dropout_masks_its_share_evenly_over_places(share):
    is_masked = augment_many(replace(OFF, token_dropout=share), rows=4000, tokens=20)

    # Five standard deviations of the mean of 4,000 draws.
    tolerance = 5 * np.sqrt(share * (1 - share) / 4000)
    assert np.abs(is_masked.mean(axis=0) - share).max() < tolerance


def test_spans_mask_their_share_also_of_rows_too_short_for_a_whole_token():
    is_masked = augment_many(replace(OFF, span_masking=0.15), rows=4000, tokens=3)

    assert is_masked.mean() == pytest.approx(0.15, abs=0.02)


def test_spans_fall_evenly_over_places():
    is_masked = augment_many(replace(OFF, span_masking=0.2), rows=4000, tokens=30)

    assert is_masked.mean() == pytest.approx(0.2, abs=1e-3)
    # Only the ends are reached from one side and less often.
    inner = is_masked.mean(axis=0)[5:-5]
    assert inner.max() - inner.min() < 0.05


@pytest.mark.parametrize("mean", [1.0, 3.0, 5.0])
def test_spans_have_the_mean_length_asked_for_and_an_end(mean):
    settings = replace(OFF, span_masking=0.02, mean_span_tokens=mean)

    lengths = np.concatenate([runs_of(row) for row in augment_many(settings, rows=40, tokens=5000)])

    # Spans that touch look like one; at this share few do.
    assert lengths.mean() == pytest.approx(mean, rel=0.1)
    assert np.mean(lengths > MAX_SPAN_TOKENS) < 0.05
