"""However a batch is dealt to ranks and cut into passes, its gradient is that of one pass."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from train_fakes import build_thread_groups
from train_samples import build_micro_batch, build_tiny_model

from pipeline.config import Task, TrainSettings
from pipeline.train.group import SingleGroup
from pipeline.train.micro_batches import MicroBatch, split_micro_batches
from pipeline.train.step import Optimisation, train_step

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
LENGTHS = st.lists(st.integers(2, 11), min_size=1, max_size=9)


def take_step(micro_batches, group, task):
    state = Optimisation(build_tiny_model(task).train(), TrainSettings(), device=CPU)
    state.set_lr(1e-2)
    result = train_step(state, micro_batches, group=group)
    return result, state.gradients


def rows_of(batch, first, last):
    """Return a part of a batch, with all its padding."""
    rows = slice(first, last)
    return MicroBatch(
        input_ids=batch.input_ids[rows],
        attention_mask=batch.attention_mask[rows],
        labels=batch.labels[rows],
        row_ids=batch.row_ids[rows],
    )


def ids_of(batch):
    rows = zip(batch.input_ids, batch.attention_mask, strict=True)
    return [ids[mask == 1].tolist() for ids, mask in rows]


@pytest.mark.slow
@pytest.mark.parametrize("task", list(Task))
@given(lengths=LENGTHS, micro_batch=st.integers(1, 9), cuts=st.lists(st.integers(0, 9), max_size=3))
@settings(max_examples=25, deadline=None)
def test_gradient_does_not_depend_on_ranks_and_micro_batch(task, lengths, micro_batch, cuts):
    batch = build_micro_batch(lengths, task)
    # Ranks may have any share of the rows, also none.
    bounds = [0, *sorted(min(cut, len(lengths)) for cut in cuts), len(lengths)]
    shares = [[rows_of(batch, *pair)] if pair[0] < pair[1] else [] for pair in pairwise(bounds)]
    groups = build_thread_groups(len(shares))
    whole, gradient = take_step([batch], SingleGroup(), task)

    with ThreadPoolExecutor(len(groups)) as pool:
        ranks = list(
            pool.map(
                lambda group: take_step(
                    split_micro_batches(shares[group.rank], micro_batch), group, task
                ),
                groups,
            )
        )

    for result, gradients in ranks:
        assert result.loss == pytest.approx(whole.loss, abs=1e-6)
        assert result.tokens == whole.tokens == sum(lengths)
        assert result.padded_tokens <= whole.padded_tokens
        torch.testing.assert_close(gradients, gradient, atol=2e-6, rtol=1e-4)


@given(lengths=LENGTHS, limit=st.integers(1, 9), task=st.sampled_from(Task))
def test_split_keeps_every_row_and_drops_only_padding(lengths, limit, task):
    batch = build_micro_batch(lengths, task)

    parts = split_micro_batches([batch], limit)

    assert all(len(part.row_ids) <= limit for part in parts)
    assert [row for part in parts for row in part.row_ids] == list(batch.row_ids)
    ids = [
        row[mask == 1].tolist()
        for p in parts
        for row, mask in zip(p.input_ids, p.attention_mask, strict=True)
    ]
    assert ids == [
        row[mask == 1].tolist()
        for row, mask in zip(batch.input_ids, batch.attention_mask, strict=True)
    ]
    assert sum(part.num_labelled for part in parts) == batch.num_labelled
    if len(lengths) > limit:
        assert all(bool(part.attention_mask[:, -1].any()) for part in parts)
        assert all(len(part.row_ids) == limit for part in parts[1:])


def test_split_leaves_what_is_small_enough_as_it_is():
    batches = [build_micro_batch([3, 5]), build_micro_batch([4])]

    parts = split_micro_batches(batches, 2)

    assert all(part is batch for part, batch in zip(parts, batches, strict=True))
