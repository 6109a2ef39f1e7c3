import multiprocessing
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
import torch
from train_fakes import build_thread_groups
from train_runs import run_together, run_until, timeless, without_dropout
from train_samples import build_job, prepare_run, run_alone

from pipeline.config import Task
from pipeline.contract.errors import ConfigError, TrainingError, WeightsError
from pipeline.contract.folder import read_manifest
from pipeline.model.weights import build_new_model
from pipeline.train import loop
from pipeline.train.checkpoint import find_latest_checkpoint, load_checkpoint
from pipeline.train.history import HISTORY_NAME, read_history


def final_model(folder):
    return load_checkpoint(find_latest_checkpoint(folder))["model"]


@pytest.mark.slow
@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("step", [3, 6])
def test_resumed_run_equals_an_unbroken_one_bit_for_bit(tmp_path, task, step):
    unbroken = prepare_run(build_job(tmp_path / "unbroken", task))
    run_alone(unbroken)
    broken = prepare_run(build_job(tmp_path / "broken", task))
    run_until(broken, step)
    # A killed process leaves lines of steps after its checkpoint, the last one cut.
    with (broken.checkpoint_dir / HISTORY_NAME).open("a") as file:
        file.write('{"step": 7, "epo')
    random.seed(99)
    np.random.seed(99)
    torch.manual_seed(99)

    assert run_alone(broken) == step

    assert timeless(broken.checkpoint_dir) == timeless(unbroken.checkpoint_dir)
    expected = final_model(unbroken.checkpoint_dir)
    for name, tensor in final_model(broken.checkpoint_dir).items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.slow
def test_resumed_run_repeats_augmentation_token_limits_and_readers_ahead(tmp_path):
    settings = {
        "augmentation": {"token_dropout": 0.2, "span_masking": 0.2},
        "max_batch_tokens": 24,
    }
    plain = prepare_run(build_job(tmp_path / "plain"))
    unbroken = prepare_run(build_job(tmp_path / "unbroken", **settings))
    broken = prepare_run(build_job(tmp_path / "broken", **settings, loader_workers=1))
    run_alone(plain)
    run_alone(unbroken)
    run_until(broken, 6)

    assert run_alone(broken) == 6

    assert timeless(broken.checkpoint_dir) == timeless(unbroken.checkpoint_dir)
    assert multiprocessing.active_children() == []
    steps = [record.step for record in read_history(unbroken.checkpoint_dir)]
    assert steps == list(range(1, unbroken.total_steps + 1))
    assert unbroken.total_steps > plain.total_steps


@pytest.mark.slow
def test_augmentation_changes_what_is_learned_from_the_same_tokens(tmp_path):
    plain = prepare_run(build_job(tmp_path / "plain"))
    masked = prepare_run(build_job(tmp_path / "masked", augmentation={"token_dropout": 0.5}))
    run_alone(plain)
    run_alone(masked)

    histories = [timeless(run.checkpoint_dir) for run in (plain, masked)]

    assert all(one.loss != two.loss for one, two in zip(*histories, strict=True))
    assert all(one.tokens == two.tokens for one, two in zip(*histories, strict=True))


@pytest.mark.slow
def test_run_whose_latest_checkpoint_is_truncated_goes_on_from_the_one_before(tmp_path):
    unbroken = prepare_run(build_job(tmp_path / "unbroken"))
    run_alone(unbroken)
    broken = prepare_run(build_job(tmp_path / "broken"))
    run_until(broken, 6)
    latest = broken.checkpoint_dir / read_manifest(broken.checkpoint_dir)["latest"]
    latest.write_bytes(latest.read_bytes()[:100])

    # The end of the first epoch was the best so far, so it has a checkpoint as well.
    assert run_alone(broken) == 5

    assert timeless(broken.checkpoint_dir) == timeless(unbroken.checkpoint_dir)


def test_history_has_one_line_for_each_step_with_the_figures_of_the_plan(tmp_path):
    run = prepare_run(build_job(tmp_path))
    run_alone(run)

    records = read_history(run.checkpoint_dir)

    assert [record.step for record in records] == list(range(1, 11))
    assert [record.epoch for record in records] == [0] * 5 + [1] * 5
    assert records[-1].lr == 0.0
    by_epoch = [sum(r.tokens for r in records if r.epoch == epoch) for epoch in (0, 1)]
    assert by_epoch[0] == by_epoch[1] > 18
    assert all(0 <= record.padding_share < 1 and record.seconds > 0 for record in records)


@pytest.mark.slow
def test_training_learns_the_task(tmp_path):
    run = prepare_run(build_job(tmp_path, Task.TOKEN, epochs=20, base_lr=0.6))
    run_alone(run)

    losses = [record.loss for record in read_history(run.checkpoint_dir)]

    assert sum(losses[:5]) / 5 > 1.0
    assert sum(losses[-5:]) / 5 < 0.1


@pytest.mark.slow
def test_two_ranks_repeat_the_losses_of_one_without_dropout(tmp_path):
    one, two = (without_dropout(prepare_run(build_job(tmp_path / name))) for name in ("one", "two"))
    run_alone(one)

    run_together(two, 2)

    losses = [[r.loss for r in read_history(run.checkpoint_dir)] for run in (one, two)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_kind_of_checkpoint_follows_from_the_step(tmp_path):
    run = prepare_run(build_job(tmp_path, permanent_every_steps=6))

    kinds = {
        step: run.checkpoint_kind(step, is_last=step == 10, is_best=step in (4, 6))
        for step in range(1, 11)
    }

    due = {step: kind for step, kind in kinds.items() if kind}
    assert due == {3: "rolling", 4: "rolling", 6: "permanent", 9: "rolling", 10: "final"}


@pytest.mark.parametrize("kind", [ConfigError, WeightsError, TrainingError])
def test_model_that_one_rank_cannot_build_stops_all_of_them_with_its_error(
    tmp_path, monkeypatch, kind
):
    run, num_built = without_dropout(prepare_run(build_job(tmp_path))), count()

    def build_once(architecture, **how):
        if next(num_built):
            raise kind("not on this node", place="model.factory", remedy="Copy it there.")
        return build_new_model(architecture, **how)

    monkeypatch.setattr(loop, "build_new_model", build_once)

    def train(group):
        with pytest.raises(kind) as caught:
            loop.run_training(run, group=group, device=torch.device("cpu"), num_threads=1)
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(train, build_thread_groups(2)))

    assert told == ["model.factory: not on this node. Copy it there."] * 2
