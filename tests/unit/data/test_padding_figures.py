import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contract.batching import bucket_of, choose_bucket_edges, padding_share
from pipeline.data.padding import describe_buckets, padding_figures
from pipeline.data.plan import PlanSettings, build_epoch_plan
from pipeline.data.slices import SliceSettings, slice_starts

lengths_of_rows = st.lists(st.integers(1, 64), min_size=1, max_size=120).map(np.array)
settings_of_plans = st.builds(
    PlanSettings,
    batch_rows=st.integers(1, 9),
    max_batch_tokens=st.none() | st.integers(1, 200),
    window_batches=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    longest_first=st.booleans(),
)


def slices_with(edges, max_padding=0.1):
    return SliceSettings(micro_batch=99, bucket_edges=np.array(edges), max_padding=max_padding)


def cut(lengths, batch, slices):
    return np.split(batch, slice_starts(lengths[batch], slices)[1:-1])


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans)
def test_figure_of_the_plan_is_the_padding_share_of_its_batches(lengths, settings):
    slices = slices_with(choose_bucket_edges(lengths, num_buckets=4))
    plan = build_epoch_plan(lengths, epoch=0, settings=settings)
    parts = [
        part for step in range(plan.num_batches) for part in cut(lengths, plan.batch(step), slices)
    ]

    figures = padding_figures(lengths, settings, slices)

    assert figures["buckets_window"] == round(padding_share(lengths, parts), 6) <= 0.1


def test_batches_of_one_row_pad_nothing_in_any_order():
    lengths = np.array([3, 9, 4, 8])
    settings = PlanSettings(batch_rows=1, window_batches=1, seed=0, longest_first=True)

    figures = padding_figures(lengths, settings, slices_with([4, 9]))

    assert figures == {"random": 0.0, "buckets": 0.0, "buckets_window": 0.0}


def test_batches_of_all_rows_pad_to_the_longest_of_all_or_of_their_bucket():
    lengths = np.array([3, 9, 4, 8])
    settings = PlanSettings(batch_rows=4, window_batches=1, seed=0, longest_first=True)

    figures = padding_figures(lengths, settings, slices_with([4, 9], max_padding=1.0))

    assert figures == {
        "random": round(1 - 24 / 36, 6),
        "buckets": round(1 - 24 / 26, 6),
        "buckets_window": round(1 - 24 / 26, 6),
    }


@pytest.mark.slow
@given(lengths_of_rows, settings_of_plans)
def test_buckets_add_up_to_all_rows_and_to_the_padding_of_the_plan(lengths, settings):
    edges = choose_bucket_edges(lengths, num_buckets=4)
    slices = slices_with(edges)

    described = describe_buckets(lengths, settings, slices)

    plan = build_epoch_plan(lengths, epoch=0, settings=settings)
    padded = {}
    for step in range(plan.num_batches):
        for part in cut(lengths, plan.batch(step), slices):
            padded.update(dict.fromkeys(part.tolist(), lengths[part].max()))
    for bucket, found in enumerate(described):
        rows = np.flatnonzero(bucket_of(lengths, edges) == bucket)
        tokens = int(lengths[rows].sum())
        assert (found["rows"], found["tokens"]) == (len(rows), tokens)
        assert found["padding_to_edge"] == round(1 - tokens / (len(rows) * edges[bucket]), 6)
        assert found["padding"] <= min(found["padding_to_edge"], 0.1)
        assert found["padding"] == round(1 - tokens / int(sum(padded[int(r)] for r in rows)), 6)
