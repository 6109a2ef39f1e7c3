import numpy as np
import pytest
import torch
from train_samples import MAX_SEQ_LEN, NUM_LABELS, build_job, write_shards

from pipeline.config import Task
from pipeline.contract.shards import load_shards
from pipeline.data.augment import Augmentation
from pipeline.data.slices import SliceSettings
from pipeline.train.micro_batches import MicroBatchReader


def build_reader(
    tmp_path,
    task=Task.SEQUENCE,
    *,
    micro_batch=4,
    augmentation=None,
    edges=(MAX_SEQ_LEN,),
    max_padding=1.0,
):
    job = build_job(tmp_path, task)
    write_shards(job)
    split = load_shards(job.shards_dir).split("train")
    reader = MicroBatchReader(
        split,
        slices=SliceSettings(
            micro_batch=micro_batch, bucket_edges=np.array(edges), max_padding=max_padding
        ),
        pad_token_id=0,
        is_token_task=task is Task.TOKEN,
        augmentation=augmentation,
        multi_hot_size=NUM_LABELS if task is Task.MULTI_LABEL else None,
    )
    return split, reader


def test_rows_are_sliced_in_order_and_padded_to_their_own_longest(tmp_path):
    split, reader = build_reader(tmp_path)
    rows = np.argsort(split.lengths, kind="stable")[:10]

    batches = reader.read(rows, epoch=0)

    slices = np.split(rows, [2, 6])
    assert [batch.row_ids for batch in batches] == [
        tuple((1000 + indices).tolist()) for indices in slices
    ]
    for batch, indices in zip(batches, slices, strict=True):
        lengths = split.lengths[indices]
        assert batch.input_ids.shape == (len(indices), lengths.max())
        assert batch.num_tokens == lengths.sum()
        assert batch.num_labelled == len(indices)
        assert batch.labels.tolist() == [int(split.labels(int(i))[0]) for i in indices]


def test_no_slice_reaches_over_a_bucket_edge(tmp_path):
    split, reader = build_reader(tmp_path, edges=(4, MAX_SEQ_LEN))
    short_to_long = np.argsort(split.lengths, kind="stable")

    batches = reader.read(short_to_long, epoch=0)

    widths = [batch.input_ids.shape[1] for batch in batches]
    lengths = [batch.attention_mask.sum(dim=1).tolist() for batch in batches]
    assert sum(map(len, lengths)) == len(split)
    assert all(max(row) <= 4 or min(row) > 4 for row in lengths)
    assert {width <= 4 for width in widths} == {True, False}


def test_token_labels_are_padded_with_the_ignored_label(tmp_path):
    split, reader = build_reader(tmp_path, Task.TOKEN, micro_batch=18)

    (batch,) = reader.read(np.arange(18), epoch=0)

    assert batch.labels.shape == batch.input_ids.shape
    assert set(batch.labels[batch.attention_mask == 0].tolist()) == {-100}
    assert batch.num_labelled == split.lengths.sum() - 2 * 18  # all but [CLS] and [SEP]
    assert batch.num_padded_tokens == 18 * split.lengths.max() <= 18 * MAX_SEQ_LEN


def test_augmentation_follows_the_row_and_the_epoch_and_not_the_batch(tmp_path):
    augmentation = Augmentation(
        token_dropout=0.3,
        span_masking=0.3,
        mean_span_tokens=2.0,
        mask_token_id=44,
        special_token_ids=(0, 1, 2, 3, 44),
        seed=5,
    )
    _, plain = build_reader(tmp_path, Task.TOKEN, micro_batch=18)
    _, reader = build_reader(tmp_path, Task.TOKEN, micro_batch=18, augmentation=augmentation)
    (untouched,) = plain.read(np.arange(18), epoch=0)

    (together,) = reader.read(np.arange(18), epoch=0)
    alone = [reader.read(np.array([row]), epoch=0)[0] for row in range(18)]
    (later,) = reader.read(np.arange(18), epoch=1)

    for row, batch in enumerate(alone):
        num_tokens = batch.num_tokens
        assert batch.input_ids[0].tolist() == together.input_ids[row, :num_tokens].tolist()
    is_masked = together.input_ids == 44
    assert torch.equal(together.input_ids[~is_masked], untouched.input_ids[~is_masked])
    assert torch.equal(together.labels, untouched.labels)
    assert 0.3 < is_masked.sum() / untouched.attention_mask.sum() < 0.7
    assert not torch.equal(later.input_ids, together.input_ids)


def test_multi_labels_are_multi_hot_and_a_row_without_labels_counts_as_one(tmp_path):
    split, reader = build_reader(tmp_path, Task.MULTI_LABEL, micro_batch=18)

    (batch,) = reader.read(np.arange(18), epoch=0)

    assert (batch.labels.shape, batch.labels.dtype) == ((18, NUM_LABELS), torch.float32)
    found = [row.nonzero().flatten().tolist() for row in batch.labels]
    assert found == [split.labels(index).tolist() for index in range(18)]
    assert {len(row) for row in found} == {0, 1, 2}
    assert batch.num_labelled == 18


def test_no_rows_give_no_batches(tmp_path):
    _, reader = build_reader(tmp_path)

    assert reader.read(np.array([], dtype=np.int64), epoch=0) == []


@pytest.mark.parametrize("task", [Task.SEQUENCE, Task.TOKEN])
def test_tensors_are_int64(tmp_path, task):
    _, reader = build_reader(tmp_path, task)

    (batch,) = reader.read(np.array([3]), epoch=0)

    kinds = {batch.input_ids.dtype, batch.attention_mask.dtype, batch.labels.dtype}
    assert kinds == {torch.int64}
