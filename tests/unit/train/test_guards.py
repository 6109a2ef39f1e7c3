from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from train_fakes import Listener, Notices, build_thread_groups
from train_runs import run_together, run_until, run_with, without_dropout
from train_samples import MAX_SEQ_LEN, build_job, prepare_run, with_train

from pipeline.config.model import ModelSettings
from pipeline.contract.errors import FolderError, NotFiniteError, TrainingError
from pipeline.contract.folder import read_manifest
from pipeline.contract.shards import load_shards
from pipeline.model.weights import build_new_model
from pipeline.train import loop
from pipeline.train.checkpoint import find_latest_checkpoint, load_checkpoint
from pipeline.train.events import read_events
from pipeline.train.guards import SkippedSteps
from pipeline.train.history import read_history, read_validations
from pipeline.train.loop import run_training
from pipeline.train.resume_rules import judge_folder
from pipeline.train.run import plan_run, train

COUNTING_MODEL = """
import torch
from torch import nn


class CountingModel(nn.Module):
    def __init__(self, vocab_size, num_labels):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 4)
        self.hidden = nn.Linear(4, 4)
        self.classifier = nn.Linear(4, num_labels)
        self.register_buffer("num_passes", torch.zeros(()))

    def forward(self, input_ids, attention_mask):
        if self.training:
            self.num_passes += 1
        mask = attention_mask.unsqueeze(2).float()
        words = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        return self.classifier(self.hidden(words))


def build(*, vocab_size, num_labels, max_seq_len, pad_token_id):
    return CountingModel(vocab_size, num_labels)
"""


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
    name = find_latest_checkpoint(run.checkpoint_dir).name
    assert event.message.endswith(f": the loss is not finite; the newest checkpoint is {name}")
    with pytest.raises(NotFiniteError):
        run_with(run)
    assert [record.step for record in read_history(run.checkpoint_dir)] == steps


@pytest.mark.slow
def test_remedy_says_what_to_lower_and_what_a_rerun_does(tmp_path):
    run = explode(tmp_path, precision="bf16")

    with pytest.raises(NotFiniteError) as caught:
        run_with(run)

    name = find_latest_checkpoint(run.checkpoint_dir).name
    assert caught.value.remedy == (
        "Lower train.base_lr, set train.precision to fp32, or look at these rows of the input. "
        "Other settings or rows need a training anew, with --force; with the same ones it goes on "
        f"from {name} and comes to this step again."
    )
    others = with_train(run.job, base_lr=1e-3)
    with pytest.raises(FolderError, match="train anew with --force"):
        train(others, fit=run_with)
    with pytest.raises(NotFiniteError) as again:
        run_with(run)
    assert str(again.value) == str(caught.value)
    train(others, fit=run_with, force=True)
    assert len(read_history(run.checkpoint_dir)) == run.total_steps


def test_first_step_that_is_not_finite_left_nothing_so_other_settings_begin_anew(
    tmp_path, monkeypatch
):
    run = explode(tmp_path)

    def build_poisoned(architecture, **how):
        model, notes = build_new_model(architecture, **how)
        torch.nn.init.constant_(model.classifier.bias, float("nan"))
        return model, notes

    monkeypatch.setattr(loop, "build_new_model", build_poisoned)

    with pytest.raises(NotFiniteError) as caught:
        run_with(run)

    assert caught.value.remedy == (
        "Lower train.base_lr, or look at these rows of the input. Nothing is saved yet, so the "
        "next run begins anew; with the same settings it comes to this step again."
    )
    others = plan_run(with_train(run.job, base_lr=1e-3), load_shards(run.shards_dir))
    note = judge_folder(others, force=False).note
    assert note.startswith("replaces the training without checkpoints")


def test_buffers_in_that_checkpoint_are_those_before_the_failed_step(tmp_path, monkeypatch):
    (tmp_path / "counting_model.py").write_text(COUNTING_MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    job = build_job(tmp_path, checkpoint_every_steps=100, warmup_share=0.0)
    model = ModelSettings(max_seq_len=MAX_SEQ_LEN, factory="counting_model:build")
    train = job.train.model_copy(update={"base_lr": 1e36})
    buckets = job.buckets.model_copy(update={"max_padding": 0.99})  # one pass for a step
    changes = {"model": model, "train": train, "buckets": buckets}
    run = prepare_run(job.model_copy(update=changes))

    with pytest.raises(NotFiniteError):
        run_with(run)

    state = load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))
    [num_passes] = [float(v) for name, v in state["model"].items() if "num_passes" in name]
    assert num_passes == state["step"] >= 1


def test_two_ranks_stop_alike_at_a_loss_that_is_not_finite(tmp_path):
    run = without_dropout(explode(tmp_path))

    with pytest.raises(NotFiniteError):
        run_together(run, 2)

    assert find_latest_checkpoint(run.checkpoint_dir) is not None


def with_fp16(tmp_path, **settings):
    job = build_job(tmp_path, **settings)
    train = job.train.model_copy(update={"precision": "fp16"})
    return prepare_run(job.model_copy(update={"train": train}))


@pytest.mark.slow
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


@pytest.mark.slow
def test_training_that_only_skips_names_scale_and_rows(tmp_path):
    run = with_fp16(tmp_path, loss_scale=2.0**127, epochs=7)

    with pytest.raises(
        TrainingError, match=r"^rows \d.*in 30 steps in a row.*3\.169\d*e\+29.*from step_27_loss_"
    ):
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


@pytest.mark.slow
def test_notice_at_a_step_that_is_saved_anyway_writes_one_file(tmp_path):
    run = prepare_run(build_job(tmp_path, keep_checkpoints=100))

    run_with(run, poll_notice=Notices(3))

    entries = read_manifest(run.checkpoint_dir)["checkpoints"]
    assert [entry["step"] for entry in entries] == [3, 5, 6, 9, 10]


@pytest.mark.slow
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
