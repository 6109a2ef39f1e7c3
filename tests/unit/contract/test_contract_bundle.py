import json

import pytest
from profiles import profile_values
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from pipeline.contract.bundle import (
    BUNDLE_SCHEMA_VERSION,
    BundleManifest,
    Limits,
    load_bundle,
    seal_manifest,
    write_bundle,
)
from pipeline.contract.errors import (
    AlteredFileError,
    FolderError,
    MissingFileError,
    SchemaVersionError,
)
from pipeline.contract.tokenization import TextEncoder, TextSettings


def make_encoder(max_seq_len=8):
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1, "film": 2}, unk_token="[UNK]"))
    return TextEncoder(tokenizer, TextSettings(max_seq_len=max_seq_len))


def write(target, *, extra=None, **changes):
    encoder = make_encoder()

    def fill(folder):
        encoder.save(folder)
        (folder / "model.onnx").write_bytes(b"graph")
        if extra:
            (folder / extra).parent.mkdir(exist_ok=True)
            (folder / extra).write_bytes(b"x")

    def describe(files):
        values = {
            "schema_version": BUNDLE_SCHEMA_VERSION,
            "name": "job",
            "task": "sequence_classification",
            "labels": ("no", "yes"),
            "target": "cpu",
            "default_model": "model.onnx",
            "batch_shift": {"model.onnx": {"logit": 0.01, "probability": 0.002}},
            "seq_len_percentiles": range(3, 104),
            "profile": profile_values(range(3, 104), ("no", "yes")),
            "opset": 14,
            "pad_token_id": 0,
            "max_seq_len": 8,
            "strip_html": False,
            "takes_pairs": False,
            "text_fingerprint": encoder.fingerprint,
            "limits": Limits(max_seq_len=8, max_text_chars=100, max_batch_rows=32),
            "quality": {"accuracy": {"model.onnx": 0.9}},
            "provenance": {"commit": None},
            "files": files,
        }
        return BundleManifest(**{**values, **changes})

    return write_bundle(target, fill=fill, describe=describe)


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "bundle").folder


def rewrite(folder, *, sealed=True, **changes):
    path = folder / "manifest.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(seal_manifest(values) if sealed else values))


def test_a_bundle_loads_as_it_was_written(folder):
    bundle = load_bundle(folder)

    assert bundle.manifest.labels == ("no", "yes")
    assert bundle.manifest.batch_shift["model.onnx"].probability == 0.002
    assert bundle.manifest.seq_len_percentiles[50] == 53
    assert sorted(bundle.manifest.files) == ["model.onnx", "tokenizer.json"]
    assert bundle.model_path() == folder / "model.onnx"
    assert bundle.load_text_encoder().encode_texts(["film"])[0].input_ids.tolist() == [2]


def test_the_version_follows_the_bytes(tmp_path):
    first, same = write(tmp_path / "a"), write(tmp_path / "b")
    other = write(tmp_path / "c", extra="notes.txt")

    assert first.version == same.version != other.version
    assert first.version.startswith("job-")
    assert len(first.version) == len("job-") + 12


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_changed_byte_is_refused_by_name(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[0] ^= 1
    (folder / name).write_bytes(data)

    with pytest.raises(AlteredFileError, match=name.replace(".", r"\.")):
        load_bundle(folder)


def test_a_changed_manifest_is_refused_by_name(folder):
    rewrite(folder, sealed=False, labels=["yes", "no"])

    with pytest.raises(AlteredFileError, match=r"manifest\.json: the manifest was changed"):
        load_bundle(folder)


def test_a_manifest_without_its_seal_is_refused(folder):
    values = json.loads((folder / "manifest.json").read_text())
    del values["sha256_of_the_rest"]
    (folder / "manifest.json").write_text(json.dumps(values))

    with pytest.raises(AlteredFileError, match="the manifest was changed"):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "manifest.json"])
def test_a_missing_file_is_refused_by_name(folder, name):
    (folder / name).unlink()

    with pytest.raises(MissingFileError, match=name.replace(".", r"\.")):
        load_bundle(folder)


@pytest.mark.parametrize("version", [BUNDLE_SCHEMA_VERSION + 1, 0, None])
@pytest.mark.parametrize("sealed", [True, False])
def test_another_schema_is_refused_before_anything_else(folder, version, sealed):
    rewrite(folder, sealed=sealed, schema_version=version)

    with pytest.raises(SchemaVersionError, match=r"reads bundles of schema 4 \(got .*Upgrade"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"opset": "14"}, "opset: Input should be a valid integer"),
        ({"labels": []}, "labels: Tuple should have at least 1 item"),
        ({"task": "summarise"}, "task: Input should be"),
        ({"default_model": "model_int8.onnx"}, "the default model is not among the files"),
        ({"default_model": "model_fp8.onnx"}, "default_model: Input should be"),
        ({"target": "tpu"}, "target: Input should be 'cpu' or 'cuda'"),
        ({"target": None}, "target: Input should be"),
        ({"batch_shift": {}}, "batch_shift must have the model files model.onnx"),
        (
            {"batch_shift": {"model_int8.onnx": {"logit": 0.0, "probability": 0.0}}},
            r"batch_shift must have the model files model\.onnx .*model_int8\.onnx",
        ),
        (
            {"batch_shift": {"model.onnx": {"logit": -1.0, "probability": 0.0}}},
            "batch_shift.model.onnx.logit: Input should be greater than or equal to 0",
        ),
        ({"batch_shift": {"model.onnx": 0.1}}, "batch_shift.model.onnx: Input should be"),
        ({"seq_len_percentiles": [1] * 100}, "seq_len_percentiles: Tuple should have at least 101"),
        ({"seq_len_percentiles": [1.5] * 101}, "seq_len_percentiles.0: Input should be"),
        ({"profile": None}, "profile: Input should be"),
        (
            {"profile": {**profile_values(range(3, 104), ("no", "yes")), "length_counts": [1]}},
            "profile.length_counts has 1 classes, the percentiles make 10",
        ),
        ({"files": {"../manifest.json": "0" * 64}}, "outside its folder"),
    ],
)
def test_a_manifest_that_is_not_a_bundles_is_refused(folder, changes, message):
    rewrite(folder, **changes)

    with pytest.raises(FolderError, match=message):
        load_bundle(folder)


@pytest.mark.parametrize(
    "name", ["weights.pt", "w.pth", "w.pkl", "w.pickle", "w.bin", "w.joblib", "w.npy", "w.npz"]
)
def test_a_pickled_file_is_refused_and_the_old_bundle_stays(folder, name):
    before = load_bundle(folder).version

    with pytest.raises(FolderError, match=rf"may not hold pickled files \(got \['{name}'\]\)"):
        write(folder, extra=name)

    assert load_bundle(folder).version == before


def test_a_manifest_that_does_not_fit_the_files_is_refused(tmp_path):
    with pytest.raises(FolderError, match="does not name the folder's files"):
        write(tmp_path / "bundle", files={"model.onnx": "0" * 64})
    with pytest.raises(FolderError, match="does not name the folder's files"):
        write(tmp_path / "bundle", default_model="model_int8.onnx")
    assert not (tmp_path / "bundle").exists()


def test_a_tokenizer_that_is_not_that_of_training_is_refused(tmp_path):
    bundle = write(tmp_path / "bundle", text_fingerprint=make_encoder(7).fingerprint)

    with pytest.raises(AlteredFileError, match="not those of training"):
        bundle.load_text_encoder()


def test_an_unknown_model_file_is_refused_with_the_known_ones(folder):
    with pytest.raises(FolderError, match=r"no such model .*'model_fp8\.onnx'.*It has model\.onnx"):
        load_bundle(folder).model_path("model_fp8.onnx")


def test_a_file_that_is_no_model_is_no_model_path(folder):
    with pytest.raises(FolderError, match=r"no such model .*'tokenizer\.json'"):
        load_bundle(folder).model_path("tokenizer.json")


def test_files_in_folders_of_the_bundle_are_hashed_and_checked_too(tmp_path):
    bundle = write(tmp_path / "bundle", extra="reference/cell_00.pb")

    (bundle.folder / "reference" / "cell_00.pb").write_bytes(b"y")

    assert bundle.model_names == ("model.onnx",)
    with pytest.raises(AlteredFileError, match=r"reference/cell_00\.pb"):
        load_bundle(bundle.folder)
