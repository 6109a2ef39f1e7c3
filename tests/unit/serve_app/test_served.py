"""Opening the bundle that the settings name."""

import pytest
from bundles import write_tiny_bundle

from pipeline.contract.errors import AlteredFileError, FolderError, MissingFileError
from serve_app.config import ServeSettings
from serve_app.served import open_served


def test_missing_bundle_is_named_by_absolute_path_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(MissingFileError) as caught:
        open_served(ServeSettings(bundle="outputs/none"))

    assert str(tmp_path / "outputs/none") in str(caught.value)
    assert "TEXTLANE_SERVE__BUNDLE" in str(caught.value)


def test_relative_bundle_starts_in_the_working_folder(tmp_path, monkeypatch):
    bundle = write_tiny_bundle(tmp_path / "outputs" / "bundle")
    monkeypatch.chdir(tmp_path)

    served = open_served(ServeSettings(bundle="outputs/bundle"))

    assert served.version == f"{bundle.version}/model.onnx"
    assert served.model_path == bundle.folder.resolve() / "model.onnx"


def test_model_that_the_bundle_lacks_is_refused(tmp_path):
    write_tiny_bundle(tmp_path / "bundle")

    with pytest.raises(FolderError, match="no such model"):
        open_served(ServeSettings(bundle=str(tmp_path / "bundle"), model="model_int8.onnx"))


def test_changed_byte_is_refused_by_file_name(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle")
    path = bundle.folder / "model.onnx"
    path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(AlteredFileError, match=r"model\.onnx"):
        open_served(ServeSettings(bundle=str(bundle.folder)))


def test_replica_refuses_a_bundle_that_was_replaced_after_the_build(tmp_path):
    settings = ServeSettings(bundle=str(tmp_path / "bundle"))
    write_tiny_bundle(tmp_path / "bundle")
    version = open_served(settings).version
    write_tiny_bundle(tmp_path / "bundle", max_seq_len=12, with_int8=True)

    with pytest.raises(AlteredFileError, match="Deploy the application again"):
        open_served(settings, expected_version=version)
