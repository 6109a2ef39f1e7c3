import pytest
from train_runs import run_until, run_with
from train_samples import with_train

from pipeline.contract.errors import FolderError
from pipeline.contract.folder import read_manifest, write_manifest
from pipeline.contract.shards import load_shards
from pipeline.train.resume_rules import judge_folder, open_run
from pipeline.train.run import plan_run, train


def leave_unfinished(job):
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    open_run(run, shards, force=False)
    run_until(run, 3)


def never_fit(run):
    raise AssertionError("nothing was to be trained")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"epochs": 3}, "train.epochs: 2 -> 3"),
        (
            {"base_lr": 0.1, "min_lr": 0.001},
            "train.base_lr: 0.3 -> 0.1; train.min_lr: 0.0 -> 0.001",
        ),
        (
            {"early_stopping_patience": 2},
            "train.validate_every_steps: absent -> null; train.best_metric: absent -> loss; "
            "train.early_stopping_patience: null -> 2",
        ),
    ],
)
def test_unfinished_training_is_not_given_up_for_other_settings(job, changes, difference):
    leave_unfinished(job)
    before = read_manifest(job.checkpoint_dir)

    with pytest.raises(FolderError) as caught:
        train(with_train(job, **changes), fit=never_fit)

    assert str(caught.value) == (
        f"{job.checkpoint_dir.resolve()}: the folder holds an unfinished training of other "
        f"settings: {difference}. Put the settings back to go on with it, train anew with "
        "--force, or set another output_dir."
    )
    assert read_manifest(job.checkpoint_dir) == before


def test_unfinished_training_on_other_rows_is_not_given_up(job):
    leave_unfinished(job)
    manifest = read_manifest(job.shards_dir)
    write_manifest(job.shards_dir, manifest | {"fingerprint": "other-shards"})

    with pytest.raises(FolderError, match="shards: shards-of-the-test -> other-shards"):
        train(job, fit=never_fit)


@pytest.mark.slow
def test_force_throws_an_unfinished_training_away(job):
    leave_unfinished(job)
    firsts = []

    train(with_train(job, epochs=1), fit=lambda run: firsts.append(run_with(run)), force=True)

    assert firsts == [0]


def test_unfinished_training_of_an_older_version_is_not_given_up(job):
    leave_unfinished(job)
    manifest = read_manifest(job.checkpoint_dir)
    del manifest["deciding"]
    write_manifest(job.checkpoint_dir, manifest | {"schema_version": 2})

    with pytest.raises(FolderError, match=r"other settings: schema_version: 2 -> 3\. "):
        train(job, fit=never_fit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "difference"),
    [
        ({"schema_version": "3"}, r'schema_version: "3" -> 3\.'),
        ({"schema_version": None}, r"schema_version: null -> 3\."),
        ({}, r"schema_version: absent -> 3\."),
    ],
)
def test_values_that_look_alike_are_told_apart(job, edit, difference):
    leave_unfinished(job)
    manifest = read_manifest(job.checkpoint_dir)
    del manifest["schema_version"]
    write_manifest(job.checkpoint_dir, manifest | edit)

    with pytest.raises(FolderError, match=f"other settings: {difference} "):
        train(job, fit=never_fit)


@pytest.mark.slow
def test_training_without_a_checkpoint_is_no_loss(job, capsys):
    shards = load_shards(job.shards_dir)
    open_run(plan_run(job, shards), shards, force=False)

    train(with_train(job, epochs=1), fit=run_with)

    expected = "replaces the training without checkpoints of other settings: train.epochs: 2 -> 1"
    assert expected in capsys.readouterr().err


@pytest.mark.slow
def test_finished_training_is_replaced_with_a_word(job, capsys):
    train(job, fit=run_with)

    result = train(with_train(job, epochs=1), fit=run_with)

    assert not result.is_reused
    expected = "replaces the finished training of other settings: train.epochs: 2 -> 1"
    assert expected in capsys.readouterr().err


@pytest.mark.slow
def test_best_by_another_figure_needs_another_training(job):
    train(with_train(job, final_weights="best"), fit=run_with)
    run = plan_run(
        with_train(job, final_weights="best", best_metric="accuracy"), load_shards(job.shards_dir)
    )

    opening = judge_folder(run, force=False)

    assert not opening.goes_on
    assert opening.note.endswith("other settings: train.best_metric: loss -> accuracy")


@pytest.mark.slow
def test_best_of_a_training_that_never_measured_needs_another_training(job):
    train(with_train(job, validate_every_steps=0), fit=run_with)
    run = plan_run(with_train(job, final_weights="best"), load_shards(job.shards_dir))

    opening = judge_folder(run, force=False)

    assert opening.note.endswith("other settings: best checkpoint: none -> one")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"tensorboard": False},
        {"validate_every_steps": 2},
        {"best_metric": "accuracy"},
        {"checkpoint_every_steps": 2, "permanent_every_steps": 4, "keep_checkpoints": 1},
        {"micro_batch": 2, "loader_workers": 1},
        {"final_weights": "best"},
    ],
    ids=str,
)
def test_what_changes_nothing_learned_may_change_before_a_training_goes_on(job, changes):
    leave_unfinished(job)

    opening = judge_folder(
        plan_run(with_train(job, **changes), load_shards(job.shards_dir)), force=False
    )

    assert opening.goes_on


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda manifest: manifest.pop("deciding"), "the manifest lacks deciding"),
        (lambda manifest: manifest.update(checkpoints=None), "checkpoints in the manifest is not"),
        (
            lambda manifest: manifest["checkpoints"][0].update(step="3"),
            r"checkpoints\[0\] in the manifest is not as training writes it",
        ),
        (lambda manifest: manifest["checkpoints"][0].pop("sha256"), r"checkpoints\[0\] in the"),
    ],
)
def test_edited_manifest_is_refused_with_the_remedy_and_nothing_is_lost(job, edit, problem):
    leave_unfinished(job)
    manifest = read_manifest(job.checkpoint_dir)
    edit(manifest)
    write_manifest(job.checkpoint_dir, manifest)

    with pytest.raises(FolderError, match=rf"{problem}.*train anew with `textlane train --force`"):
        train(job, fit=never_fit)

    assert list(job.checkpoint_dir.glob("step_3_*.pt"))


@pytest.mark.slow
def test_finished_training_whose_weights_were_altered_goes_on_before_them(job):
    train(job, fit=run_with)
    manifest = read_manifest(job.checkpoint_dir)
    last = job.checkpoint_dir / manifest["latest"]
    last.write_bytes(last.read_bytes()[:1000])
    firsts = []

    result = train(job, fit=lambda run: firsts.append(run_with(run)))

    assert not result.is_reused
    assert 0 < firsts[0] < manifest["total_steps"]
    assert read_manifest(job.checkpoint_dir)["latest"] == last.name


@pytest.mark.slow
def test_lost_best_checkpoint_of_a_finished_training_is_told_with_the_remedy(job):
    best_of = with_train(job, final_weights="best")
    train(best_of, fit=run_with)
    manifest = read_manifest(job.checkpoint_dir)
    final = manifest["checkpoints"][-1] | {"is_best": False}
    lost = final | {"file": "step_5_loss_1.0000.pt", "step": 5, "kind": "rolling", "is_best": True}
    write_manifest(job.checkpoint_dir, manifest | {"checkpoints": [lost, final]})

    with pytest.raises(
        FolderError, match=r"the file is missing\. Set train\.final_weights to last"
    ):
        train(best_of, fit=never_fit)

    assert train(job, fit=never_fit).is_reused
