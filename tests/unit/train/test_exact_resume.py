import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from train_runs import (
    StoppedError,
    run_together,
    run_until,
    run_with,
    timeless,
    timeless_validations,
    without_dropout,
)
from train_samples import build_job, prepare_run

from pipeline.contract.errors import FolderError, TrainingError
from pipeline.contract.folder import MANIFEST_NAME, read_manifest
from pipeline.train.checkpoint import (
    CheckpointLabel,
    find_latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from pipeline.train.checkpoint_writer import CheckpointWriter
from pipeline.train.events import read_events
from pipeline.train.group import seed_step
from pipeline.train.history import read_history

KEEP_ALL = {"keep_checkpoints": 100}


def demand_equal(found, expected, place="state"):
    assert type(found) is type(expected), place
    if isinstance(found, torch.Tensor):
        assert torch.equal(found, expected), place
    elif isinstance(found, dict):
        assert list(found) == list(expected), place
        for key in found:
            demand_equal(found[key], expected[key], f"{place}/{key}")
    elif isinstance(found, list | tuple):
        assert len(found) == len(expected), place
        for at, pair in enumerate(zip(found, expected, strict=True)):
            demand_equal(*pair, f"{place}/{at}")
    else:
        assert found == expected, place


def demand_same_folder(broken, unbroken):
    assert timeless(broken.checkpoint_dir) == timeless(unbroken.checkpoint_dir)
    validations = [timeless_validations(run.checkpoint_dir) for run in (broken, unbroken)]
    assert validations[0] == validations[1] != []
    entries = [read_manifest(run.checkpoint_dir)["checkpoints"] for run in (broken, unbroken)]
    names = [[(e["file"], e["kind"], e["is_best"]) for e in found] for found in entries]
    assert names[0] == names[1]
    for file, _, _ in names[0]:
        states = [load_checkpoint(run.checkpoint_dir / file) for run in (broken, unbroken)]
        demand_equal(*states)


def prepare_two(tmp_path, **settings):
    jobs = [build_job(tmp_path / name, **settings) for name in ("broken", "unbroken")]
    broken, unbroken = (prepare_run(job) for job in jobs)
    run_with(unbroken)
    return broken, unbroken


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [3, 5, 10], ids=["in an epoch", "on an epoch boundary", "after all"]
)
def test_every_value_in_every_checkpoint_is_that_of_an_unbroken_run(tmp_path, step):
    broken, unbroken = prepare_two(tmp_path, **KEEP_ALL)
    run_until(broken, step)
    for generator in (random.seed, np.random.seed, torch.manual_seed):
        generator(99)

    assert run_with(broken) == step

    demand_same_folder(broken, unbroken)


@pytest.mark.slow
def test_run_killed_between_the_file_and_the_manifest_goes_on_from_the_checkpoint_before(tmp_path):
    broken, unbroken = prepare_two(tmp_path, **KEEP_ALL)
    run_until(broken, 5)
    shutil.copy(broken.checkpoint_dir / MANIFEST_NAME, tmp_path)
    run_until(broken, 6)
    shutil.copy(tmp_path / MANIFEST_NAME, broken.checkpoint_dir)

    assert run_with(broken) == 5

    demand_same_folder(broken, unbroken)


@pytest.mark.slow
def test_training_killed_after_its_end_is_found_finished_and_left_alone(tmp_path):
    run = prepare_run(build_job(tmp_path))
    run_until(run, 10)
    before = read_manifest(run.checkpoint_dir)

    assert run_with(run) == 10

    assert before["is_finished"] is True
    assert read_manifest(run.checkpoint_dir) == before


@pytest.mark.slow
def test_resuming_says_from_where_and_what_was_passed_over(tmp_path):
    run = prepare_run(build_job(tmp_path))
    run_until(run, 6)
    latest = find_latest_checkpoint(run.checkpoint_dir)
    latest.write_bytes(latest.read_bytes()[:100])

    run_with(run)

    [event] = read_events(run.checkpoint_dir)
    assert (event.kind, event.step) == ("resumed", 5)
    assert event.message.startswith("goes on from step_5_loss_")
    assert f"passed over {latest.name}: the file was changed after it was written" in event.message


@pytest.mark.slow
def test_new_training_tells_nothing(tmp_path):
    run = prepare_run(build_job(tmp_path))

    run_with(run)

    assert read_events(run.checkpoint_dir) == []


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3)])
def test_other_numbers_of_workers_go_on_with_nearly_the_same_losses_and_a_word(
    tmp_path, before, after
):
    broken, unbroken = (
        without_dropout(prepare_run(build_job(tmp_path / name))) for name in ("broken", "unbroken")
    )
    run_with(unbroken)
    with pytest.raises(StoppedError):
        run_together(broken, before, on_checkpoint=stop_at_6)

    assert run_together(broken, after) == [6] * after

    losses = [[r.loss for r in read_history(run.checkpoint_dir)] for run in (broken, unbroken)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    message = read_events(broken.checkpoint_dir)[-1].message
    assert f"with {after} workers instead of {before}, so losses differ" in message


def stop_at_6(record):
    if record.step == 6:
        raise StoppedError


@pytest.mark.slow
def test_every_rank_finds_its_own_generators_in_the_checkpoint(tmp_path):
    run = without_dropout(prepare_run(build_job(tmp_path)))

    run_together(run, 2)

    state = load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))
    assert len(state["rng"]) == state["world_size"] == 2


def test_step_seeds_every_generator():
    def draw(**place):
        seed_step(7, **place)
        return random.random(), float(np.random.random()), float(torch.rand(()))

    draws = [draw(step=step, rank=rank) for step in (1, 2) for rank in (0, 1)]

    assert draw(step=1, rank=0) == draws[0]
    for of_one_generator in zip(*draws, strict=True):
        assert len(set(of_one_generator)) == 4


def test_checkpoint_that_cannot_be_written_stops_the_training_at_the_next_step(tmp_path):
    run = prepare_run(build_job(tmp_path))
    manifest = run.checkpoint_dir / MANIFEST_NAME

    def take_away(record):
        if record.step == 3:
            manifest.rename(tmp_path / "away")

    with pytest.raises(FolderError, match=r"could not be written: .*manifest.*goes on from the"):
        run_with(run, on_checkpoint=take_away)

    assert len(read_history(run.checkpoint_dir)) < 10


def test_failed_write_is_raised_by_the_next_call_and_only_once(tmp_path):
    run = prepare_run(build_job(tmp_path))
    label = CheckpointLabel(step=1, loss=0.5, kind="rolling")
    with CheckpointWriter(run.checkpoint_dir, keep=3) as writer:
        writer.submit({"not": {"plain": lambda: 0}}, label)

        with pytest.raises(FolderError, match="could not be written"):
            writer.finish()

        writer.submit({"plain": torch.zeros(2)}, label)
    assert load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))["plain"].tolist() == [0, 0]


def test_written_is_what_was_there_when_it_was_handed_over(tmp_path):
    run, tensor = prepare_run(build_job(tmp_path)), torch.zeros(1_000_000)
    with CheckpointWriter(run.checkpoint_dir, keep=3) as writer:
        writer.submit({"in": [tensor]}, CheckpointLabel(step=1, loss=0.5, kind="rolling"))
        tensor.fill_(1.0)

    written = load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))["in"][0]
    assert not written.any()


def test_checkpoint_of_another_schedule_is_refused(tmp_path):
    run = prepare_run(build_job(tmp_path))
    run_until(run, 3)
    train = run.job.train.model_copy(update={"warmup_share": 0.5})
    other = run.job.model_copy(update={"train": train})

    with pytest.raises(TrainingError, match=r"its schedule is .*another output_dir"):
        run_with(replace(run, job=other))


@pytest.mark.slow
@pytest.mark.parametrize(("now_set", "expected"), [(4, 2), (3, 3)])
def test_micro_batch_that_memory_allowed_is_kept_until_another_is_set(tmp_path, now_set, expected):
    run = prepare_run(build_job(tmp_path, micro_batch=4))
    run_until(run, 6)
    path = find_latest_checkpoint(run.checkpoint_dir)
    state = load_checkpoint(path) | {"micro_batch": {"set": 4, "used": 2}}
    label = CheckpointLabel(step=6, loss=0.5, kind="rolling")
    save_checkpoint(run.checkpoint_dir, state, label, keep=3)
    train = run.job.train.model_copy(update={"micro_batch": now_set})

    run_with(replace(run, job=run.job.model_copy(update={"train": train})))

    sizes = [record.micro_batch for record in read_history(run.checkpoint_dir)]
    assert sizes == [4] * 6 + [expected] * 4
