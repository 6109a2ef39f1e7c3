"""Reading batches from shards against the training step that uses them up, on the CPU."""

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.config import TrainSettings
from pipeline.contract.shards import SHARD_SCHEMA, ShardSplit, write_shard
from pipeline.data.augment import Augmentation
from pipeline.data.plan import PlanSettings, build_epoch_plan
from pipeline.data.slices import SliceSettings
from pipeline.model.architecture import Architecture
from pipeline.model.weights import build_new_model
from pipeline.train.group import SingleGroup
from pipeline.train.micro_batches import MicroBatchReader
from pipeline.train.step import Optimisation, train_step

pytestmark = pytest.mark.perf

NUM_ROWS = 20_000
MIN_RATIO = 20
ROUNDS = 3
AUGMENTATION = Augmentation(
    token_dropout=0.05,
    span_masking=0.1,
    mean_span_tokens=3.0,
    mask_token_id=4,
    special_token_ids=(0, 1, 2, 3, 4),
    seed=0,
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model, its batches, and how many of them a round runs."""

    hidden_size: int
    num_layers: int
    num_heads: int
    vocab_size: int
    max_seq_len: int
    batch_rows: int
    precision: str
    num_steps: int


SHAPES = {
    # job_configs/demo_cpu.yaml
    "minilm": Shape(
        hidden_size=384,
        num_layers=6,
        num_heads=12,
        vocab_size=30_522,
        max_seq_len=256,
        batch_rows=32,
        precision="bf16",
        num_steps=6,
    ),
    # job_configs/entities_cpu.yaml
    "small": Shape(
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        vocab_size=1_000,
        max_seq_len=64,
        batch_rows=16,
        precision="fp32",
        num_steps=100,
    ),
}


def write_split(folder, shape):
    """Write shards of log-normal lengths in four files and map them."""
    generator = np.random.default_rng(0)
    median = np.log(shape.max_seq_len / 4)
    lengths = np.clip(np.exp(generator.normal(median, 0.8, NUM_ROWS)), 4, shape.max_seq_len)
    paths = []
    for number, part in enumerate(np.array_split(np.sort(lengths.astype(np.int64)), 4)):
        offsets = np.r_[0, np.cumsum(part)].astype(np.int32)
        ids = generator.integers(5, shape.vocab_size, offsets[-1]).astype(np.int32)
        texts = pa.array([""] * len(part))
        columns = {
            "row_id": pa.array(np.arange(len(part)) + number * NUM_ROWS),
            "window": pa.array(np.zeros(len(part), dtype=np.int32)),
            "text": texts,
            "text_pair": texts,
            "input_ids": pa.ListArray.from_arrays(offsets, ids),
            "labels": pa.array([[index % 2] for index in range(len(part))], pa.list_(pa.int32())),
        }
        paths.append(folder / f"{number}.arrow")
        write_shard(paths[-1], pa.table(columns).select(SHARD_SCHEMA.names))
    return ShardSplit(paths)


def build_reader(split, shape, augmentation=None):
    return MicroBatchReader(
        split,
        slices=SliceSettings(
            micro_batch=shape.batch_rows,
            bucket_edges=split.lengths.max(keepdims=True),
            max_padding=0.1,
        ),
        pad_token_id=0,
        is_token_task=False,
        augmentation=augmentation,
    )


def build_state(shape):
    architecture = Architecture(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        intermediate_size=4 * shape.hidden_size,
        max_position_embeddings=shape.max_seq_len,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        dropout=0.1,
        pooling="mean",
        num_labels=2,
        task="sequence_classification",
        pad_token_id=0,
    )
    model, _ = build_new_model(architecture, seed=0, pretrained=None)
    settings = TrainSettings(precision=shape.precision)
    state = Optimisation(model.train(), settings, device=torch.device("cpu"))
    state.set_lr(1e-5)
    return state


def batches_per_second(work, batches):
    started = time.perf_counter()
    for batch in batches:
        work(batch)
    return len(batches) / (time.perf_counter() - started)


@pytest.mark.parametrize("name", SHAPES)
def test_reading_is_far_ahead_of_the_training_step(tmp_path, name):
    shape = SHAPES[name]
    split = write_split(tmp_path, shape)
    settings = PlanSettings(
        batch_rows=shape.batch_rows, window_batches=128, seed=0, longest_first=False
    )
    plan = build_epoch_plan(split.lengths, epoch=0, settings=settings)
    batches = [plan.batch(step) for step in range(plan.num_batches)]
    reader, augmenting = build_reader(split, shape), build_reader(split, shape, AUGMENTATION)
    torch.set_num_threads(2)
    state = build_state(shape)
    # The plan's order is random, so its first batches are a sample of all.
    loaded = [reader.read(batch, epoch=0) for batch in batches[: shape.num_steps]]
    train_step(state, loaded[0], group=SingleGroup())

    ratios = []
    for _ in range(ROUNDS):
        reading = batches_per_second(lambda batch: reader.read(batch, epoch=0), batches)
        augmented = batches_per_second(lambda batch: augmenting.read(batch, epoch=0), batches)
        steps = batches_per_second(
            lambda micro: train_step(state, micro, group=SingleGroup()), loaded
        )
        ratios.append(reading / steps)
        print(
            f"\n{name}: reading {reading:.0f}, with augmentation {augmented:.0f}, "
            f"training step {steps:.2f} batches/s, ratio {reading / steps:.0f} "
            f"(augmented {augmented / steps:.0f})"
        )

    assert sorted(ratios)[ROUNDS // 2] >= MIN_RATIO
