from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from train_runs import run_together, run_until, run_with, timeless, without_dropout
from train_samples import build_job, prepare_run, write_shards

from pipeline.contract.errors import ConfigError, FolderError
from pipeline.contract.folder import read_manifest, write_manifest
from pipeline.contract.shards import load_shards
from pipeline.model.trained import load_trained
from pipeline.train.checkpoint import find_latest_checkpoint, load_checkpoint
from pipeline.train.early_stopping import BestSoFar
from pipeline.train.events import read_events
from pipeline.train.history import read_history, read_validations
from pipeline.train.run import plan_run, train

# A learning rate that spoils the weights, so that the loss of the validation rows soon rises.
STOPS = {
    "epochs": 8,
    "base_lr": 20.0,
    "validate_every_steps": 2,
    "early_stopping_patience": 3,
    "keep_checkpoints": 2,
}


def follow(values, metric="loss"):
    best = BestSoFar(metric=metric)
    for step, value in enumerate(values, start=1):
        best = best.after(value, step=step)
    return best


@given(st.lists(st.floats(0, 1), min_size=1), st.sampled_from(["loss", "accuracy"]))
def test_best_is_the_first_of_the_best_values_and_the_rest_since_are_worse(values, metric):
    best = follow(values, metric)

    wanted = min(values) if metric == "loss" else max(values)
    assert (best.value, best.step) == (wanted, values.index(wanted) + 1)
    assert best.num_worse == len(values) - best.step


def test_patience_counts_measurements_in_a_row():
    counts = [follow([0.5, 0.6, 0.4, 0.4, 0.5][:end]).is_exhausted(2) for end in range(1, 6)]

    assert counts == [False, False, False, False, True]
    assert not follow([0.1] * 99).is_exhausted(None)


def test_training_ends_when_patience_is_over_and_is_finished(tmp_path):
    run = prepare_run(build_job(tmp_path, **STOPS))

    run_with(run)

    records = read_validations(run.checkpoint_dir)
    last, best = records[-1].step, [record for record in records if record.is_best][-1].step
    assert last == best + 2 * 3 < run.total_steps == 40
    assert [record.step for record in read_history(run.checkpoint_dir)] == list(range(1, last + 1))
    manifest = read_manifest(run.checkpoint_dir)
    assert manifest["is_finished"] is True
    assert manifest["checkpoints"][-1]["kind"] == "final"
    [event] = read_events(run.checkpoint_dir)
    assert (event.kind, event.step) == ("early_stop", last)
    assert event.message.startswith(f"stopped after step {last} of 40: 3 measurements in a row")


@pytest.mark.slow
def test_resumed_run_stops_at_the_step_of_an_unbroken_one(tmp_path):
    unbroken, broken = (
        prepare_run(build_job(tmp_path / name, **STOPS)) for name in ("unbroken", "broken")
    )
    run_with(unbroken)
    last = read_history(unbroken.checkpoint_dir)[-1].step
    run_until(broken, last // 3 * 3)

    run_with(broken)

    assert timeless(broken.checkpoint_dir) == timeless(unbroken.checkpoint_dir)


@pytest.mark.slow
def test_two_ranks_stop_at_the_same_step(tmp_path):
    run = without_dropout(prepare_run(build_job(tmp_path, **STOPS)))

    run_together(run, 2)

    assert read_manifest(run.checkpoint_dir)["is_finished"] is True
    assert read_history(run.checkpoint_dir)[-1].step < run.total_steps


@pytest.mark.slow
@pytest.mark.parametrize("final_weights", ["last", "best"])
def test_evaluation_gets_the_weights_that_are_asked_for(tmp_path, final_weights):
    job = build_job(tmp_path, **STOPS, final_weights=final_weights)
    write_shards(job)

    result = train(job, fit=run_with)

    trained = load_trained(job.checkpoint_dir)
    step = load_checkpoint(trained.checkpoint_file)["step"]
    records = read_validations(job.checkpoint_dir)
    best = [record.step for record in records if record.is_best][-1]
    assert step == (best if final_weights == "best" else records[-1].step)
    assert f"{records[-1].step} steps of 40 (stopped early)" in result.summary
    assert (f"best after step {best}" in result.summary) == (final_weights == "best")


@pytest.mark.slow
def test_choice_of_weights_may_change_without_another_training(tmp_path):
    job = build_job(tmp_path, **STOPS)
    write_shards(job)
    train(job, fit=run_with)
    last = load_trained(job.checkpoint_dir).checkpoint_file
    settings = job.train.model_copy(update={"final_weights": "best"})

    result = train(job.model_copy(update={"train": settings}), fit=run_with)

    assert result.is_reused
    assert load_trained(job.checkpoint_dir).checkpoint_file != last


@pytest.mark.slow
def test_exactly_one_checkpoint_is_the_best_and_it_is_the_one_measured_best(tmp_path):
    run = prepare_run(build_job(tmp_path, validate_every_steps=1, keep_checkpoints=1, epochs=3))

    run_with(run)

    entries = read_manifest(run.checkpoint_dir)["checkpoints"]
    records = read_validations(run.checkpoint_dir)
    expected = min(records, key=lambda record: record.loss).step
    assert [entry["step"] for entry in entries if entry["is_best"]] == [expected]


@pytest.mark.slow
def test_best_that_is_not_there_is_said(tmp_path):
    run = prepare_run(build_job(tmp_path))
    run_with(run)
    manifest = read_manifest(run.checkpoint_dir)
    entries = [{**entry, "is_best": False} for entry in manifest["checkpoints"]]
    write_manifest(run.checkpoint_dir, manifest | {"checkpoints": entries, "final_weights": "best"})

    with pytest.raises(FolderError, match="no checkpoint is the best"):
        load_trained(run.checkpoint_dir)


def without_validation_rows(job):
    write_shards(job)
    manifest = read_manifest(job.shards_dir)
    manifest["splits"]["validation"] = {"files": [], "rows": 0, "tokens": 0}
    write_manifest(job.shards_dir, manifest)
    return load_shards(job.shards_dir)


@pytest.mark.parametrize("needs", [{"early_stopping_patience": 2}, {"final_weights": "best"}])
def test_shards_without_validation_rows_are_refused_where_figures_are_needed(tmp_path, needs):
    job = build_job(tmp_path, **needs)
    shards = without_validation_rows(job)

    with pytest.raises(ConfigError, match=r"need validation rows.*data\.validation_share"):
        plan_run(job, shards)


@pytest.mark.slow
def test_shards_without_validation_rows_are_trained_with_a_note(tmp_path, capsys):
    job = build_job(tmp_path)
    without_validation_rows(job)

    train(job, fit=run_with)

    assert "hold no validation rows, so nothing is measured" in capsys.readouterr().err
    assert read_validations(job.checkpoint_dir) == []
    assert torch.isfinite(next(load_trained(job.checkpoint_dir).model.parameters())).all()


def test_entity_f1_is_refused_for_labels_that_are_no_bio_tags(tmp_path):
    job = build_job(tmp_path, best_metric="entity_f1")
    write_shards(job)

    with pytest.raises(ConfigError, match=r"train\.best_metric: entity_f1 needs word labels"):
        plan_run(job, load_shards(job.shards_dir))


@pytest.mark.slow
def test_best_by_another_figure_begins_anew_when_the_figure_changes(tmp_path):
    run = prepare_run(build_job(tmp_path))
    run_until(run, 6)
    train_settings = run.job.train.model_copy(update={"best_metric": "accuracy"})

    run_with(replace(run, job=run.job.model_copy(update={"train": train_settings})))

    state = load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))
    assert state["best"] == {
        "metric": "accuracy",
        "step": 10,
        "value": read_validations(run.checkpoint_dir)[-1].accuracy,
        "num_worse": 0,
    }
