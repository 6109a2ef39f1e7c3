import json

import pytest
from release_reports import START, Traffic, fresh_evidence, running_state

from pipeline.contract.errors import FolderError, SchemaVersionError
from serve_app.release.record import Outcome
from serve_app.release.state import end_release, promote_release
from serve_app.release.store import ReleaseStore, default_release_dir


@pytest.fixture
def store(tmp_path):
    return ReleaseStore(tmp_path / "made" / "bundle.release")


def ended(release_id="r1"):
    state = running_state(release_id=release_id)
    return end_release(state, Outcome.ROLLED_BACK, at=START + 9, reason="errors: 5 %")


def test_a_folder_that_is_not_there_holds_nothing(store):
    assert store.read_state() is None
    assert store.recover() is None
    assert store.read_history() == ()
    assert store.read_evidence("r1") is None


def test_what_is_stored_is_read(store):
    state = running_state()
    evidence = fresh_evidence(state)
    evidence.add(Traffic().second(state), at=START + 1)
    store.write_state(state)
    store.write_evidence(evidence)

    assert ReleaseStore(store.folder).read_state() == state
    assert store.read_evidence("r1") == evidence
    assert store.read_evidence("r2") is None
    assert sorted(path.name for path in store.folder.iterdir()) == ["evidence.json", "state.json"]


def test_each_release_that_ended_is_one_line(store):
    for release_id in ("r1", "r2", "r2"):
        store.write_state(ended(release_id))
    store.write_state(promote_release(running_state(release_id="r3"), at=START, reason="by hand"))

    history = store.read_history()
    assert [record.release_id for record in history] == ["r1", "r2", "r3"]
    assert history[0] == ended("r1").last
    assert len((store.folder / "history.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_record_that_a_kill_kept_from_the_history_is_added(store, cut):
    store.write_state(ended("r1"))
    store.write_state(ended("r2"))
    path = store.folder / "history.jsonl"
    first, second, _ = path.read_text().split("\n")
    path.write_text(f"{first}\n{second[:cut]}")

    assert [record.release_id for record in store.read_history()] == ["r1"]
    store.recover()
    assert [record.release_id for record in store.read_history()] == ["r1", "r2"]


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        ("", FolderError, "not JSON"),
        ("{", FolderError, "not JSON"),
        ("[]", SchemaVersionError, "schema 1"),
        ('{"schema_version": 2, "content": {}}', SchemaVersionError, r"schema 1 \(got 2\)"),
        ('{"schema_version": 1}', FolderError, "damaged"),
        ('{"schema_version": 1, "content": {"surplus": 5}}', FolderError, "damaged: "),
        ("\x00" * 40, FolderError, "not JSON"),
    ],
)
@pytest.mark.parametrize("name", ["state.json", "evidence.json"])
def test_a_damaged_file_is_an_error_that_names_it_and_the_remedy(store, name, text, kind, match):
    store.folder.mkdir(parents=True)
    (store.folder / name).write_text(text)
    read = store.recover if name == "state.json" else lambda: store.read_evidence("r1")

    with pytest.raises(kind, match=match) as caught:
        read()
    assert caught.value.place == str(store.folder / name)
    assert "Put back a copy" in caught.value.remedy


def test_a_state_with_an_impossible_plan_is_damaged(store):
    store.write_state(running_state())
    path = store.folder / "state.json"
    values = json.loads(path.read_text())
    values["content"]["release"]["plan"]["steps"][0]["weight"] = 2.0
    path.write_text(json.dumps(values))

    with pytest.raises(FolderError, match=r"damaged: release\.plan\.steps\.0\.weight"):
        store.read_state()


def test_a_damaged_line_of_the_history_is_named(store):
    store.write_state(ended())
    path = store.folder / "history.jsonl"
    path.write_text(f"rubbish\n{path.read_text()}")

    with pytest.raises(FolderError, match=r"history\.jsonl:1: not JSON"):
        store.read_history()


def test_a_folder_that_cannot_be_written_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(FolderError, match="cannot be written"):
        ReleaseStore(tmp_path / "file" / "below").write_state(running_state())


def test_the_default_folder_is_beside_the_bundle(tmp_path):
    assert default_release_dir(tmp_path / "bundle") == tmp_path / "bundle.release"
    assert default_release_dir(tmp_path / "bundle/") == tmp_path / "bundle.release"
