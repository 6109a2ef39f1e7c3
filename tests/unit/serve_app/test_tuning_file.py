"""The tuning file, and when serving heeds it."""

import json
import os

import pytest
from bundles import write_tiny_bundle
from tuning_samples import tuning_for

from pipeline.contract.errors import FolderError, MissingFileError, SchemaVersionError
from serve_app.config import ServeSettings
from serve_app.limits import default_threads
from serve_app.machine import Machine, read_machine
from serve_app.served import open_served
from serve_app.tuning_file import as_json, read_tuning, tuning_path, why_not, write_tuning


@pytest.fixture
def bundle(tmp_path):
    return write_tiny_bundle(tmp_path / "bundle", with_int8=True)


@pytest.fixture
def tuned(bundle):
    """A bundle with a tuning beside it that holds."""
    write_tuning(tuning_path(bundle.folder), tuning_for(bundle))
    return bundle


def open_with(bundle, **settings):
    return open_served(ServeSettings(bundle=str(bundle.folder), **settings))


def test_a_tuning_is_read_as_it_was_written(bundle, tmp_path):
    tuning = tuning_for(bundle)

    write_tuning(tmp_path / "t.json", tuning)

    assert read_tuning(tmp_path / "t.json") == tuning
    assert list(tmp_path.glob(".t.json*")) == []


def test_the_file_lies_beside_the_bundle_and_not_in_it(bundle, tmp_path):
    assert tuning_path(bundle.folder) == tmp_path / "bundle.tuning.json"


def test_a_measured_cell_is_one_line_of_the_file(bundle):
    lines = as_json(tuning_for(bundle)).splitlines()

    assert '    {"threads": 1, "batch": 1, "seq": 3, "seconds": 0.001, "runs": 3}' in lines


def test_what_is_not_set_comes_from_the_tuning(tuned):
    served = open_with(tuned)

    assert served.limits.tuned == {
        "threads_per_replica": 1,
        "short_max_tokens": 5,
        "max_batch_tokens": 48,
        "max_batch_requests": 8,
    }
    assert set(served.limits.origins.values()) == {"tuning"}
    assert served.tuning_note is None
    assert "max_batch_tokens 48 (tuning)" in served.origins_line


def test_what_is_set_wins_over_the_tuning(tuned):
    served = open_with(tuned, max_batch_tokens=64, threads_per_replica=3)

    assert served.limits.tuned == {
        "threads_per_replica": 3,
        "short_max_tokens": 5,
        "max_batch_tokens": 64,
        "max_batch_requests": 8,
    }
    assert "threads_per_replica 3 (setting), short_max_tokens 5 (tuning)" in served.origins_line


def test_without_a_tuning_there_are_defaults_that_fit(bundle):
    served = open_with(bundle)

    assert served.limits.tuned == {
        "threads_per_replica": default_threads(ServeSettings(bundle="b"), cpus=HERE.usable_cpus),
        "short_max_tokens": 8,
        "max_batch_tokens": 512,
        "max_batch_requests": 32,
    }
    assert set(served.limits.origins.values()) == {"default"}
    assert served.tuning_note is None


def test_defaults_give_way_to_a_long_bundle_and_a_short_queue(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "long", max_seq_len=600)

    served = open_with(bundle, max_queued_requests=16, max_texts_per_request=16)

    assert served.limits.max_batch_tokens == 600
    assert served.limits.max_batch_requests == 16
    assert served.limits.origins["max_batch_requests"] == "setting max_queued_requests"


def test_a_named_tuning_is_used_and_starts_in_the_working_folder(tuned, tmp_path, monkeypatch):
    write_tuning(tmp_path / "mine.json", tuning_for(tuned, max_batch_tokens=96))
    monkeypatch.chdir(tmp_path)

    assert open_with(tuned, tuning="mine.json").limits.max_batch_tokens == 96


HERE = read_machine()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bundle_version": "old-1"}, "another bundle: old-1, here tiny-"),
        ({"model": "model_int8.onnx"}, "another model file: model_int8.onnx, here model.onnx"),
        (
            {"machine": HERE.model_copy(update={"cpu": "Acme 9000"})},
            "another CPU: Acme 9000, here ",
        ),
        (
            {"machine": HERE.model_copy(update={"usable_cpus": 999})},
            "another number of usable CPUs: 999, here ",
        ),
        (
            {"machine": HERE.model_copy(update={"onnxruntime": "0.1"})},
            "another version of onnxruntime: 0.1, here ",
        ),
    ],
)
@pytest.mark.parametrize("is_named", [False, True])
def test_a_tuning_for_something_else_is_passed_over_with_why_and_the_remedy(
    bundle, changes, why, is_named
):
    path = tuning_path(bundle.folder)
    write_tuning(path, tuning_for(bundle).model_copy(update=changes))

    served = open_with(bundle, **({"tuning": str(path)} if is_named else {}))

    assert set(served.limits.origins.values()) == {"default"}
    assert f"the tuning {path} is passed over: it is for {why}" in served.tuning_note
    assert f"Run `textlane tune {bundle.folder}`" in served.tuning_note


def test_another_served_model_file_passes_the_tuning_over(tuned):
    served = open_with(tuned, model="model_int8.onnx")

    assert "model.onnx, here model_int8.onnx" in served.tuning_note


def test_a_gpu_passes_the_tuning_over(tuned):
    served = open_with(tuned, device="cuda", lane_num_gpus=0.5)

    assert "measured on the CPU, and device is cuda" in served.tuning_note
    assert set(served.limits.origins.values()) == {"default"}


@pytest.mark.parametrize(
    "values",
    [
        {"short_max_tokens": 16},
        {"max_batch_tokens": 15},
        {"max_batch_requests": 33},
        {"threads_per_replica": HERE.usable_cpus + 1},
    ],
)
def test_values_that_the_bundle_cannot_have_are_passed_over(bundle, values):
    reason = why_not(tuning_for(bundle, **values), bundle=bundle, model="model.onnx", machine=HERE)

    assert reason == "its values do not fit the bundle it names; was it edited?"


DAMAGED = [
    ("", "not JSON", FolderError),
    ("{", "not JSON", FolderError),
    ("\ud800", "not JSON", FolderError),
    ("[" * 100_000, "not JSON", FolderError),
    ("9" * 10_000, "not JSON", FolderError),
    ("[]", "not a tuning: the whole", FolderError),
    ("{}", "reads tunings of schema 1", SchemaVersionError),
    ('{"schema_version": 2}', "reads tunings of schema 1", SchemaVersionError),
    ('{"schema_version": 1}', "not a tuning: bundle_version: field required", FolderError),
]


@pytest.mark.parametrize(("text", "message", "kind"), DAMAGED)
def test_a_damaged_file_is_an_error_if_named_and_else_passed_over(bundle, text, message, kind):
    path = tuning_path(bundle.folder)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")

    served = open_with(bundle)
    with pytest.raises(kind) as caught:
        open_with(bundle, tuning=str(path))

    assert message in str(caught.value).replace("Field", "field")
    assert "Run `textlane tune BUNDLE`" in str(caught.value)
    assert f"the tuning is passed over: {caught.value}" == served.tuning_note


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("choice.max_batch_tokens", "512"),
        ("choice.max_batch_tokens", 0),
        ("choice.max_batch_tokens", True),
        ("choice.texts_per_s", float("nan")),
        ("choice.extra", 1),
        ("cells", []),
        ("model", "model.pt"),
        ("machine", None),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(bundle, tmp_path, field, value):
    values = json.loads(as_json(tuning_for(bundle)))
    part, *rest = field.split(".")
    if rest:
        values[part][rest[0]] = value
    else:
        values[part] = value
    (tmp_path / "t.json").write_text(json.dumps(values))

    with pytest.raises(FolderError, match=f"not a tuning: {field}: "):
        read_tuning(tmp_path / "t.json")


def test_a_named_file_that_is_not_there_is_an_error(bundle, tmp_path):
    with pytest.raises(MissingFileError, match=r"none\.json: there is no such tuning"):
        open_with(bundle, tuning=str(tmp_path / "none.json"))


def test_where_all_is_set_no_tuning_is_looked_for(bundle):
    tuning_path(bundle.folder).write_text("damaged")

    served = open_with(
        bundle,
        threads_per_replica=1,
        short_max_tokens=4,
        max_batch_tokens=64,
        max_batch_requests=4,
    )

    assert served.tuning_note is None
    assert set(served.limits.origins.values()) == {"setting"}


def test_a_machine_is_more_than_its_number_of_cpus():
    assert Machine(cpu="a", usable_cpus=2, onnxruntime="1") != Machine(
        cpu="b", usable_cpus=2, onnxruntime="1"
    )
    assert HERE.usable_cpus <= (os.cpu_count() or 1)
