import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from train_fakes import FailingReader, RandomReader
from train_samples import build_job, build_micro_batch, write_shards

from pipeline.config import Task
from pipeline.contract.shards import load_shards
from pipeline.data.augment import Augmentation
from pipeline.data.plan import PlanSettings, RunPlan
from pipeline.data.slices import SliceSettings
from pipeline.train.loader import open_loader
from pipeline.train.micro_batches import MicroBatchReader

pytestmark = pytest.mark.slow

AUGMENTATION = Augmentation(
    token_dropout=0.2,
    span_masking=0.2,
    mean_span_tokens=2.0,
    mask_token_id=44,
    special_token_ids=(0, 1, 2, 3, 44),
    seed=5,
)
SETTINGS = PlanSettings(
    batch_rows=5, max_batch_tokens=40, window_batches=2, seed=5, longest_first=True
)


def open_reader(shards_dir):
    return MicroBatchReader(
        load_shards(shards_dir).split("train"),
        slices=SliceSettings(
            micro_batch=2,
            bucket_edges=load_shards(shards_dir).bucket_edges,
            max_padding=0.1,
        ),
        pad_token_id=0,
        is_token_task=False,
        augmentation=AUGMENTATION,
    )


def batches_of(steps):
    plan = RunPlan(np.full(9, 4), epoch_steps=(2, 2), settings=SETTINGS)
    return [plan.batch(step) for step in steps]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def as_lists(loaded):
    """Return all that a step brings, to compare."""
    micro_batches = [
        (m.input_ids.tolist(), m.attention_mask.tolist(), m.labels.tolist(), m.row_ids)
        for m in loaded.micro_batches
    ]
    return loaded.step, loaded.epoch, micro_batches


@pytest.mark.parametrize("num_workers", [1, 2])
def test_processes_bring_the_very_batches_in_the_very_order(tmp_path, num_workers):
    job = build_job(tmp_path)
    write_shards(job)

    found = []
    for count in (0, num_workers):
        with open_loader(
            batches_of([2, 3, 4]),
            open_reader=partial(open_reader, job.shards_dir),
            num_workers=count,
            seed=1,
        ) as steps:
            found.append([as_lists(loaded) for loaded in steps])

    assert found[1] == found[0]
    assert [(step, epoch) for step, epoch, _ in found[0]] == [(2, 0), (3, 1), (4, 1)]
    assert multiprocessing.active_children() == []


def test_processes_draw_apart_from_each_other_and_repeat_by_seed():
    def draws_of(seed):
        with open_loader(
            batches_of([1, 2]), open_reader=RandomReader, num_workers=2, seed=seed
        ) as steps:
            return [loaded.micro_batches for loaded in steps]

    state = torch.get_rng_state()
    first, other = draws_of(1), draws_of(2)

    assert all(one != two for one, two in zip(*first, strict=True))
    assert all(one != two for one, two in zip(first[0], other[0], strict=True))
    assert draws_of(1) == first
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("reader", [RandomReader, FailingReader])
def test_an_error_in_the_block_or_in_a_process_leaves_no_process(reader):
    def load_and_fail():
        batches = batches_of([1, 2, 3, 4])
        with open_loader(batches, open_reader=reader, num_workers=1, seed=1) as steps:
            next(steps)
            raise RuntimeError("stopped by the test")

    with pytest.raises(RuntimeError, match=r"stopped by the test") as caught:
        load_and_fail()

    assert caught.value.__traceback__ is not None  # it holds the loader's frames
    assert multiprocessing.active_children() == []


def test_killed_training_process_takes_its_readers_along():
    folder = Path(__file__).parent
    command = [sys.executable, str(folder / "train_fakes.py")]
    environment = os.environ | {"PYTHONPATH": f"{folder.parents[2]}:{folder}"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as trainer:
        readers = {int(trainer.stdout.readline()) for _ in range(2)}
        trainer.kill()

    deadline = time.monotonic() + 60
    while any(map(is_running, readers)) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert len(readers) == 2
    assert not any(map(is_running, readers))


@pytest.mark.parametrize("task", list(Task))
def test_micro_batch_survives_pickling(task):
    batch = build_micro_batch([3, 5], task=task)

    copy = pickle.loads(pickle.dumps(batch))

    for name in ("input_ids", "attention_mask", "labels"):
        assert torch.equal(getattr(copy, name), getattr(batch, name))
    assert copy.row_ids == batch.row_ids
