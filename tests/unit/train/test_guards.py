from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from train_fakes import Listener, Notices, build_thread_groups
from train_runs import run_together, run_until, run_with, without_dropout
from train_samples import build_job, prepare_run

from pipeline.contract.errors import NotFiniteError, TrainingError
from pipeline.contract.folder import read_manifest
from pipeline.model.weights import build_new_model
from pipeline.train.checkpoint import find_latest_checkpoint, load_checkpoint
from pipeline.train.events import read_events
from pipeline.train.guards import SkippedSteps
from pipeline.train.history import read_history, read_validations
from pipeline.train.loop import run_training
from pipeline.train.memory import build_memory_ledger


def explode(tmp_path, **settings):
    """Return a run whose third step meets weights of the second one's absurd learning rate."""
    job = build_job(tmp_path, checkpoint_every_steps=100, warmup_share=0.0, **settings)
    train = job.train.model_copy(update={"base_lr": 1e36})
    return prepare_run(job.model_copy(update={"train": train}))


def test_loss_that_is_not_finite_leaves_the_state_before_it_in_a_checkpoint(tmp_path):
    run = explode(tmp_path)

    with pytest.raises(NotFiniteError, match=r"^rows \d+(, \d+)*: the loss is not finite"):
        run_with(run)

    steps = [record.step for record in read_history(run.checkpoint_dir)]
    state = load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))
    assert state["step"] == steps[-1] >= 1
    assert all(torch.isfinite(tensor).all() for tensor in state["model"].values())
    assert read_manifest(run.checkpoint_dir)["is_finished"] is False
    [event] = read_events(run.checkpoint_dir)
    assert (event.kind, event.step) == ("not_finite", steps[-1] + 1)
    assert "the loss is not finite" in event.message
    with pytest.raises(NotFiniteError):
        run_with(run)
    assert [record.step for record in read_history(run.checkpoint_dir)] == steps


def test_two_ranks_stop_alike_at_a_loss_that_is_not_finite(tmp_path):
    run = without_dropout(explode(tmp_path))

    with pytest.raises(NotFiniteError):
        run_together(run, 2)

    assert find_latest_checkpoint(run.checkpoint_dir) is not None


def with_fp16(tmp_path, **settings):
    job = build_job(tmp_path, **settings)
    train = job.train.model_copy(update={"precision": "fp16"})
    return prepare_run(job.model_copy(update={"train": train}))


def test_skipped_steps_are_told_at_every_power_of_two_and_kept_over_a_resume(tmp_path):
    run = with_fp16(tmp_path, loss_scale=2.0**26, epochs=4)
    run_until(run, 3)

    run_with(run)

    skipped = [record.step for record in read_history(run.checkpoint_dir) if record.skipped]
    state = load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))
    assert state["skips"]["total"] == len(skipped)
    assert 4 <= len(skipped) < 20
    told = [event.step for event in read_events(run.checkpoint_dir) if event.kind == "skipped"]
    assert told == [skipped[2**power - 1] for power in range(len(skipped).bit_length())]


def test_thirty_skipped_steps_in_a_row_stop_with_the_scale_and_the_rows():
    skips = SkippedSteps()
    counts = []
    for is_skipped in [True] * 29 + [False] + [True] * 30:
        skips = skips.after(is_skipped=is_skipped)
        counts.append(skips.is_hopeless)

    assert counts == [False] * 59 + [True]
    assert (skips.total, skips.in_a_row) == (59, 30)


def test_training_that_only_skips_names_scale_and_rows(tmp_path):
    run = with_fp16(tmp_path, loss_scale=2.0**127, epochs=7)

    with pytest.raises(TrainingError, match=r"^rows \d.*in 30 steps in a row.*3\.169\d*e\+29"):
        run_with(run)

    assert len(read_history(run.checkpoint_dir)) == 30


def test_epoch_without_steps_is_an_error(tmp_path):
    run = replace(prepare_run(build_job(tmp_path)), epoch_steps=(5, 0))

    with pytest.raises(TrainingError, match=r"an epoch has no steps \(got \(5, 0\)\)\. Look at"):
        run_with(run)


def test_first_notice_saves_at_once_and_the_training_goes_on(tmp_path):
    run = prepare_run(build_job(tmp_path, checkpoint_every_steps=100, validate_every_steps=0))
    saved = []

    def look(record):
        saved.append((record.step, find_latest_checkpoint(run.checkpoint_dir).name))

    run_with(run, poll_notice=Notices(4, 5), on_checkpoint=look)

    assert [step for step, _ in saved] == [4, 10]
    assert saved[0][1].startswith("step_4_loss_")
    [event] = read_events(run.checkpoint_dir)
    assert (event.kind, event.step) == ("preempted", 4)
    assert event.message == "the machine goes in 60 s; step 4 is saved"


def test_notice_at_a_step_that_is_saved_anyway_writes_one_file(tmp_path):
    run = prepare_run(build_job(tmp_path, keep_checkpoints=100))

    run_with(run, poll_notice=Notices(3))

    entries = read_manifest(run.checkpoint_dir)["checkpoints"]
    assert [entry["step"] for entry in entries] == [3, 5, 6, 9, 10]


def test_observers_are_told_on_one_rank_in_order_and_closed_on_all(tmp_path):
    run = without_dropout(prepare_run(build_job(tmp_path)))
    listeners = [Listener(), Listener()]

    def train(group):
        run_training(
            run,
            group=group,
            device=torch.device("cpu"),
            num_threads=1,
            observers=[listeners[group.rank]],
        )

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, build_thread_groups(2)))

    steps, measured = read_history(run.checkpoint_dir), read_validations(run.checkpoint_dir)
    assert listeners[0].told == [*steps[:5], measured[0], *steps[5:], measured[1]]
    assert listeners[1].told == []
    assert [listener.num_closed for listener in listeners] == [1, 1]


def test_observers_are_closed_when_the_training_fails(tmp_path):
    listener = Listener()

    with pytest.raises(NotFiniteError):
        run_with(explode(tmp_path), observers=[listener])

    assert listener.num_closed == 1
    assert listener.told[-1].kind == "not_finite"


def test_training_that_is_too_large_for_a_device_is_refused_on_all_ranks(tmp_path):
    run = prepare_run(build_job(tmp_path))
    model, _ = build_new_model(run.architecture, seed=1, pretrained=None)
    ledger = build_memory_ledger(model, precision="fp32", rows=4, seq_len=12)
    huge = replace(run, memory=replace(ledger, parameters_bytes=10**16))

    with pytest.raises(TrainingError, match=r"each of 2 workers can have .*Not even one row fits"):
        run_together(huge, 2)

    assert read_history(run.checkpoint_dir) == []
