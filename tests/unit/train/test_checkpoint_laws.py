import json

import pytest
from train_samples import build_job, prepare_run, run_alone

from pipeline.contract.folder import read_manifest, sha256_file, write_manifest
from pipeline.train.checkpoint import (
    CheckpointLabel,
    Choice,
    choose_checkpoint,
    find_latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)


@pytest.fixture
def folder(tmp_path):
    return prepare_run(build_job(tmp_path)).checkpoint_dir


def save(folder, step, kind="rolling", *, keep=2, loss=0.123456):
    label = CheckpointLabel(step=step, loss=loss, kind=kind)
    return save_checkpoint(folder, {"step": step}, label, keep=keep)


def names(folder):
    return sorted(path.name for path in folder.glob("step_*"))


def test_name_holds_step_and_loss_and_the_manifest_its_hash(folder):
    path = save(folder, 500)

    manifest = read_manifest(folder)
    assert path.name == "step_500_loss_0.1235.pt"
    assert manifest["latest"] == path.name
    assert manifest["is_finished"] is False
    entry = {"file": path.name, "step": 500, "loss": 0.123456, "kind": "rolling", "is_best": False}
    assert manifest["checkpoints"] == [entry | {"sha256": sha256_file(path)}]


def test_only_the_newest_rolling_ones_stay_and_every_other_kind(folder):
    save(folder, 1, "permanent")
    for step in (2, 3, 4):
        save(folder, step)
    save(folder, 5, "final")

    kinds = [(e["step"], e["kind"]) for e in read_manifest(folder)["checkpoints"]]
    assert kinds == [(1, "permanent"), (3, "rolling"), (4, "rolling"), (5, "final")]
    assert names(folder) == [f"step_{step}_loss_0.1235.pt" for step in (1, 3, 4, 5)]
    assert read_manifest(folder)["is_finished"] is True


def test_truncated_latest_is_passed_over_with_its_fault(folder):
    good, bad = save(folder, 1), save(folder, 2)
    bad.write_bytes(bad.read_bytes()[:-7])

    found = choose_checkpoint(folder)

    assert found.path == good
    [fault] = found.passed_over
    assert fault.startswith(f"{bad.name}: the file was changed")


def test_missing_file_is_passed_over_and_nothing_left_means_none(folder):
    lost = save(folder, 1)
    lost.unlink()

    assert choose_checkpoint(folder) == Choice(
        path=None, passed_over=(f"{lost.name}: the file is missing",)
    )


def test_file_of_a_killed_save_is_not_taken_and_goes_with_the_next_save(folder):
    first = save(folder, 1)
    (folder / "step_2_loss_0.1000.pt").write_bytes(b"written, not yet named")
    (folder / "step_3_loss_0.1000.pt.partial").write_bytes(b"half")

    assert find_latest_checkpoint(folder) == first
    save(folder, 4)

    assert names(folder) == ["step_1_loss_0.1235.pt", "step_4_loss_0.1235.pt"]


def test_failed_write_leaves_folder_and_manifest_as_they_were(folder):
    save(folder, 1)
    before = names(folder), read_manifest(folder)
    label = CheckpointLabel(step=2, loss=0.1, kind="rolling")

    with pytest.raises(Exception, match="pickle"):
        save_checkpoint(folder, {"x": lambda: 0}, label, keep=2)

    assert (names(folder), read_manifest(folder)) == before


def test_same_step_written_again_replaces_its_entry(folder):
    save(folder, 1, loss=0.5)
    save(folder, 1, loss=0.25)

    assert names(folder) == ["step_1_loss_0.2500.pt"]
    assert len(read_manifest(folder)["checkpoints"]) == 1


@pytest.mark.slow
def test_checkpoint_of_a_run_holds_what_resuming_needs_and_loads_without_pickled_code(tmp_path):
    run = prepare_run(build_job(tmp_path))
    run_alone(run)

    state = load_checkpoint(find_latest_checkpoint(run.checkpoint_dir))

    assert state["step"] == state["total_steps"] == 10
    assert state["fingerprint"] == run.facts["fingerprint"]
    assert state["shards_fingerprint"] == "shards-of-the-test"
    assert set(state["versions"]) == {"numpy", "ray", "tokenizers", "torch"}
    assert {"model", "optimizer", "scaler", "world_size", "num_threads"} <= set(state)
    assert (state["epoch"], state["steps_in_epoch"]) == (1, 5)
    assert state["schedule"]["total_steps"] == 10
    assert state["micro_batch"] == {"set": 4, "used": 4}
    assert [set(rng) for rng in state["rng"]] == [{"python", "numpy", "torch", "cuda"}]


def test_manifest_of_a_run_is_plain_json_without_private_values(tmp_path):
    run = prepare_run(build_job(tmp_path))

    manifest = read_manifest(run.checkpoint_dir)

    assert json.loads(json.dumps(manifest)) == manifest
    assert manifest["architecture"]["hidden_size"] == 16
    assert manifest["text_settings"] == {"max_seq_len": 12, "strip_html": False}
    write_manifest(run.checkpoint_dir, manifest)
    assert read_manifest(run.checkpoint_dir) == manifest
