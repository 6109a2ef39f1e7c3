from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.batching import bucket_of, choose_bucket_edges, padding_share
from pipeline.data.slices import SliceSettings, cut_slices, slice_starts

sorted_batches = st.lists(
    st.lists(st.integers(1, 64), min_size=1, max_size=20).map(sorted), min_size=1, max_size=6
)


def settings_for(lengths, *, micro_batch=99, num_buckets=1, max_padding=1.0):
    return SliceSettings(
        micro_batch=micro_batch,
        bucket_edges=choose_bucket_edges(np.asarray(lengths), num_buckets=num_buckets),
        max_padding=max_padding,
    )


@pytest.mark.slow
@given(sorted_batches, st.integers(1, 9), st.integers(1, 5), st.floats(0, 1))
def test_slices_hold_all_rows_and_keep_every_bound(batches, micro_batch, num_buckets, max_padding):
    in_order = np.concatenate([np.array(batch) for batch in batches])
    batch_starts = np.cumsum([0, *map(len, batches)])
    settings = settings_for(
        in_order, micro_batch=micro_batch, num_buckets=num_buckets, max_padding=max_padding
    )

    starts = cut_slices(in_order, batch_starts, settings)

    slices = [np.arange(begin, end) for begin, end in pairwise(starts)]
    buckets = bucket_of(in_order, settings.bucket_edges)
    assert np.concatenate(slices).tolist() == list(range(len(in_order)))
    assert set(batch_starts) <= set(starts)
    assert all(0 < len(rows) <= micro_batch for rows in slices)
    assert all(len(set(buckets[rows])) == 1 for rows in slices)
    assert all(padding_share(in_order, [rows]) <= max_padding + 1e-9 for rows in slices)


@pytest.mark.slow
@given(sorted_batches)
def test_without_bounds_a_batch_is_one_slice(batches):
    in_order = np.concatenate([np.array(batch) for batch in batches])
    batch_starts = np.cumsum([0, *map(len, batches)])

    starts = cut_slices(in_order, batch_starts, settings_for(in_order))

    assert starts.tolist() == batch_starts.tolist()


@pytest.mark.parametrize(
    ("lengths", "bounds", "expected"),
    [
        ([3, 9, 9, 10], {"max_padding": 0.1}, [0, 1, 4]),
        ([3, 4, 4, 9], {"num_buckets": 2, "micro_batch": 2}, [0, 1, 3, 4]),
        ([5, 5, 5], {"micro_batch": 2}, [0, 1, 3]),
        ([4, 5], {"max_padding": 0.1}, [0, 2]),
        ([4, 5], {"max_padding": 0.09}, [0, 1, 2]),
    ],
)
def test_slice_takes_as_many_shorter_rows_as_its_bounds_allow(lengths, bounds, expected):
    starts = slice_starts(np.array(lengths), settings_for(lengths, **bounds))

    assert starts.tolist() == expected


def test_slices_of_no_rows_are_none():
    starts = slice_starts(np.zeros(0, dtype=np.int64), settings_for([4]))

    assert starts.tolist() == [0]
