import shutil

import pytest
from train_samples import run_alone, with_train

from pipeline.config import AugmentationSettings, Task
from pipeline.contract import folder
from pipeline.contract.errors import ConfigError, FolderError, MissingFileError
from pipeline.contract.folder import hash_files, read_manifest, sha256_file, write_manifest
from pipeline.contract.tokenization import TOKENIZER_NAME
from pipeline.train.events import read_events
from pipeline.train.history import read_history
from pipeline.train.run import train


class RecordingFit:
    """Trains without Ray and remembers which step each run went on from."""

    def __init__(self):
        self.first_steps = []

    def __call__(self, run):
        self.first_steps.append(run_alone(run))


class InterruptedFit:
    def __call__(self, run):
        raise KeyboardInterrupt


@pytest.mark.slow
def test_stage_trains_and_says_what_is_in_the_folder(job, capsys):
    result = train(job, fit=RecordingFit())

    assert (result.folder, result.is_reused) == (job.checkpoint_dir, False)
    assert result.summary.startswith("10 steps, last loss ")
    assert read_manifest(job.checkpoint_dir)["is_finished"] is True
    tokenizers = [folder / "tokenizer.json" for folder in (job.shards_dir, job.checkpoint_dir)]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()
    output = capsys.readouterr()
    assert output.out == ""
    assert "all weights start from the seed" in output.err
    assert "memory of each worker: parameters 0" in output.err


@pytest.mark.slow
def test_finished_training_is_reused_and_force_trains_again(job):
    fit = RecordingFit()

    results = [train(job, fit=fit), train(job, fit=fit), train(job, fit=fit, force=True)]

    assert [result.is_reused for result in results] == [False, True, False]
    assert fit.first_steps == [0, 0]


@pytest.mark.slow
def test_settings_that_change_nothing_learned_do_not_retrain(job):
    fit = RecordingFit()
    train(job, fit=fit)

    result = train(with_train(job, micro_batch=2, keep_checkpoints=1, loader_workers=2), fit=fit)

    assert result.is_reused


@pytest.mark.slow
def test_other_settings_start_anew(job):
    fit = RecordingFit()
    train(job, fit=fit)

    train(with_train(job, base_lr=0.1), fit=fit)

    assert fit.first_steps == [0, 0]
    assert len(read_history(job.checkpoint_dir)) == 10


@pytest.mark.slow
def test_unfinished_training_goes_on_and_says_from_where(job, capsys):
    fit = RecordingFit()
    train(job, fit=fit)
    manifest = read_manifest(job.checkpoint_dir)
    kept = [entry for entry in manifest["checkpoints"] if entry["step"] <= 6]
    write_manifest(job.checkpoint_dir, manifest | {"is_finished": False, "checkpoints": kept})

    train(job, fit=fit)

    assert fit.first_steps == [0, 6]
    note = "goes on with a training whose newest checkpoint is step_6_loss_"
    assert note in capsys.readouterr().err
    assert [record.step for record in read_history(job.checkpoint_dir)] == list(range(1, 11))


@pytest.mark.slow
def test_damaged_checkpoint_is_told_of_once_and_hashed_once(job, capsys, caplog, monkeypatch):
    train(job, fit=RecordingFit())
    manifest = read_manifest(job.checkpoint_dir)
    kept = [entry for entry in manifest["checkpoints"] if entry["step"] <= 6]
    write_manifest(job.checkpoint_dir, manifest | {"is_finished": False, "checkpoints": kept})
    newest = job.checkpoint_dir / kept[-1]["file"]
    newest.write_bytes(b"damaged")
    hashed = []

    def sha256_noted(path):
        hashed.append(path.name)
        return sha256_file(path)

    monkeypatch.setattr(folder, "sha256_file", sha256_noted)

    train(job, fit=RecordingFit())

    [event] = read_events(job.checkpoint_dir)
    assert event.message.count(f"passed over {newest.name}: the file was changed") == 1
    assert "passed over" not in capsys.readouterr().err + caplog.text
    assert hashed.count(newest.name) == 1


@pytest.mark.slow
def test_deleted_final_checkpoint_is_trained_again_from_the_one_before(job):
    fit = RecordingFit()
    train(job, fit=fit)
    (job.checkpoint_dir / read_manifest(job.checkpoint_dir)["latest"]).unlink()

    result = train(job, fit=fit)

    assert not result.is_reused
    assert fit.first_steps == [0, 9]


@pytest.mark.slow
def test_interrupted_training_leaves_a_folder_that_goes_on(job):
    with pytest.raises(KeyboardInterrupt):
        train(job, fit=InterruptedFit())

    assert read_manifest(job.checkpoint_dir)["is_finished"] is False
    assert not train(job, fit=RecordingFit()).is_reused


LEFT_ALONE = (
    "Put its manifest.json back if it is yours, move the folder away, or set another output_dir; "
    "--force leaves it alone too."
)


@pytest.mark.parametrize("force", [False, True])
def test_folder_without_a_manifest_is_left_alone_and_its_files_are_named(job, force):
    job.checkpoint_dir.mkdir()
    for name in ("step_3_loss_1.0000.pt", "history.jsonl", "letter.txt", "events.jsonl"):
        (job.checkpoint_dir / name).write_text("not yours")

    with pytest.raises(FolderError) as caught:
        train(job, fit=RecordingFit(), force=force)

    assert str(caught.value) == (
        f"{job.checkpoint_dir}: the folder has no manifest.json, but holds events.jsonl, "
        f"history.jsonl, letter.txt and 1 more. {LEFT_ALONE}"
    )
    assert (job.checkpoint_dir / "letter.txt").read_text() == "not yours"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "what the folder holds cannot be told: not JSON: Expecting"),
        (b"\xff\xfe", "what the folder holds cannot be told: not JSON: 'utf-8' codec"),
        (b"[]", "what the folder holds cannot be told: the manifest is not a JSON object"),
        (b"{}", "the manifest is not that of a training: it lacks shards_fingerprint"),
    ],
)
def test_folder_whose_manifest_cannot_be_used_is_left_alone_with_the_remedy(job, content, problem):
    job.checkpoint_dir.mkdir()
    manifest = job.checkpoint_dir / "manifest.json"
    manifest.write_bytes(content)

    with pytest.raises(FolderError) as caught:
        train(job, fit=RecordingFit(), force=True)

    assert str(caught.value).startswith(f"{manifest}: {problem}")
    assert str(caught.value).endswith(LEFT_ALONE)
    assert manifest.read_bytes() == content


def test_file_in_the_place_of_the_folder_is_left_alone(job):
    job.checkpoint_dir.write_text("not yours")

    with pytest.raises(FolderError, match=r"checkpoint: the output is a file, not a folder\. Move"):
        train(job, fit=RecordingFit(), force=True)

    assert job.checkpoint_dir.read_text() == "not yours"


def test_shards_of_another_task_are_refused(job):
    other = job.model_copy(update={"task": Task.TOKEN})

    with pytest.raises(ConfigError, match=r"shards are for sequence_classification.*prepare"):
        train(other, fit=RecordingFit())


@pytest.mark.slow
def test_augmentation_without_a_mask_token_is_refused(job):
    path = job.shards_dir / TOKENIZER_NAME
    path.write_text(path.read_text().replace("[MASK]", "[OTHER]"))
    manifest = read_manifest(job.shards_dir)
    write_manifest(job.shards_dir, manifest | {"files": hash_files(job.shards_dir)})
    masking = with_train(job, augmentation=AugmentationSettings(span_masking=0.1))

    with pytest.raises(ConfigError, match=r"train\.augmentation: .*has no \[MASK\].*Set token_"):
        train(masking, fit=RecordingFit())

    assert not train(job, fit=RecordingFit()).is_reused


def test_missing_shards_name_the_stage_to_run(job):
    shutil.rmtree(job.shards_dir)

    with pytest.raises(MissingFileError, match="Run the stage that writes this folder"):
        train(job, fit=RecordingFit())


@pytest.mark.parametrize("max_seq_len", [8, 16])
def test_shards_cut_for_another_length_are_refused(job, max_seq_len):
    model = job.model.model_copy(update={"max_seq_len": max_seq_len})
    other = job.model_copy(update={"model": model})

    with pytest.raises(ConfigError) as caught:
        train(other, fit=RecordingFit())

    assert str(caught.value) == (
        f"model.max_seq_len: the texts of {job.shards_dir} were cut for model.max_seq_len 12 "
        f"(got {max_seq_len}). Run `textlane prepare` for this job."
    )


def test_shards_of_single_texts_are_refused_for_pairs(job):
    data = job.data.model_copy(update={"text_pair_column": "second"})

    with pytest.raises(ConfigError, match=r"the shards hold single texts .*textlane prepare"):
        train(job.model_copy(update={"data": data}), fit=RecordingFit())
