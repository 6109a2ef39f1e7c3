import numpy as np
import pytest
import torch
from train_samples import build_job, prepare_run, run_alone

from pipeline.config import Task
from pipeline.contract.errors import (
    AlteredFileError,
    FolderError,
    MissingFileError,
    SchemaVersionError,
)
from pipeline.contract.folder import read_manifest, write_manifest
from pipeline.model.trained import load_trained


@pytest.fixture
def run(tmp_path):
    run = prepare_run(build_job(tmp_path, epochs=1))
    run_alone(run)
    return run


def change_manifest(folder, **changes):
    write_manifest(folder, read_manifest(folder) | changes)


def test_trained_model_is_the_final_checkpoint_ready_to_answer(run):
    trained = load_trained(run.checkpoint_dir)

    logits = trained.model(torch.tensor([[2, 5, 3]]), torch.ones(1, 3, dtype=torch.int64))

    assert (logits.shape, logits.dtype) == ((1, 3), torch.float32)
    assert not trained.model.training
    assert trained.labels == ("label0", "label1", "label2")
    assert trained.task == Task.SEQUENCE
    assert trained.fingerprint == run.facts["fingerprint"]
    assert trained.architecture == run.architecture
    assert trained.checkpoint_file.name.startswith("step_5_loss_")
    np.testing.assert_array_equal(
        trained.encoder.encode_texts(["w0 w1"])[0].input_ids, np.array([2, 4, 5, 3])
    )


def test_unfinished_training_is_refused_with_the_remedy(tmp_path):
    run = prepare_run(build_job(tmp_path))

    with pytest.raises(FolderError, match=r"not finished.*Run `textlane train`"):
        load_trained(run.checkpoint_dir)


def test_changed_checkpoint_is_refused_by_name(run):
    path = load_trained(run.checkpoint_dir).checkpoint_file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    with pytest.raises(AlteredFileError, match=path.name):
        load_trained(run.checkpoint_dir)


def test_changed_tokenizer_is_refused(run):
    path = run.checkpoint_dir / "tokenizer.json"
    path.write_text(path.read_text().replace('"w39"', '"w40"'))

    with pytest.raises(AlteredFileError, match="not those of training"):
        load_trained(run.checkpoint_dir)


def test_newer_schema_is_refused(run):
    change_manifest(run.checkpoint_dir, schema_version=4)

    with pytest.raises(SchemaVersionError, match=r"schema 3 \(got 4\)"):
        load_trained(run.checkpoint_dir)


def test_manifest_that_lacks_a_field_is_refused_by_name(run):
    manifest = read_manifest(run.checkpoint_dir)
    del manifest["labels"]
    write_manifest(run.checkpoint_dir, manifest)

    with pytest.raises(FolderError, match="the manifest lacks labels"):
        load_trained(run.checkpoint_dir)


def test_manifest_of_another_architecture_is_refused(run):
    architecture = read_manifest(run.checkpoint_dir)["architecture"] | {"num_layers": 2}
    change_manifest(run.checkpoint_dir, architecture=architecture)

    with pytest.raises(FolderError, match="does not hold this model"):
        load_trained(run.checkpoint_dir)


def test_absent_folder_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match=r"manifest\.json"):
        load_trained(tmp_path / "nowhere")
