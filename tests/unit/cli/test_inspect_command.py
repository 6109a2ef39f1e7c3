"""`textlane inspect`: tables, JSON and a picture of good shards, one line about bad ones."""

import json
import subprocess
import sys

import pytest
from shard_samples import shard_row, write_sample_shards

from pipeline.__main__ import main
from pipeline.contract.folder import read_manifest, write_manifest


@pytest.fixture
def folder(tmp_path):
    splits = {
        name: [[shard_row(number, 3 + number, [number % 2], f"text {number}")]]
        for number, name in enumerate(("train", "validation", "test"))
    }
    return write_sample_shards(tmp_path / "shards", splits, labels=["no", "yes"])


def error_of(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return " ".join(captured.err.split())


def test_inspect_prints_tables(folder, capsys):
    status = main(["inspect", str(folder)])

    captured = capsys.readouterr()
    assert status == 0
    assert captured.err == ""
    for title in ("rows of the input", "splits", "labels", "buckets", "longest rows"):
        assert f"\n{title}" in captured.out
    assert "picture: none in the folder; --picture FILE.svg draws one" in captured.out


def test_inspect_prints_json_for_programs(folder, capsys):
    status = main(["inspect", str(folder), "--json"])

    values = json.loads(capsys.readouterr().out)
    assert status == 0
    assert values["splits"]["train"]["rows"] == 1
    assert values["task"] == "sequence_classification"


@pytest.mark.slow
def test_inspect_draws_the_picture_and_says_where(folder, tmp_path, capsys):
    picture = tmp_path / "lengths.svg"

    status = main(["inspect", str(folder), "--picture", str(picture)])

    assert status == 0
    assert picture.read_text().endswith("</svg>\n")
    assert f"picture: {picture}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lengths.png", "--picture: the picture is an SVG file"),
        ("shards/new.svg", "--picture: the picture would change the shards folder"),
        ("gone/lengths.svg", "No such file or directory"),
    ],
)
def test_a_picture_that_cannot_be_written_there_is_refused(folder, tmp_path, capsys, name, message):
    status = main(["inspect", str(folder), "--picture", str(tmp_path / name)])

    assert status == 2
    assert message in error_of(capsys)


def test_a_folder_that_is_no_shards_folder_is_named(tmp_path, capsys):
    status = main(["inspect", str(tmp_path)])

    assert status == 2
    assert f"{tmp_path}/manifest.json: the file is missing." in error_of(capsys)


def test_a_missing_file_is_named(folder, capsys):
    (folder / "test/bucket_00_shard_00000.arrow").unlink()

    status = main(["inspect", str(folder)])

    assert status == 2
    assert "test/bucket_00_shard_00000.arrow: the file is missing" in error_of(capsys)


def test_a_changed_byte_is_found_unless_the_files_are_trusted(folder, capsys):
    path = folder / "train/bucket_00_shard_00000.arrow"
    path.write_bytes(path.read_bytes().replace(b"text 0", b"TEXT 0"))

    status = main(["inspect", str(folder)])

    assert status == 2
    assert "the file was changed after it was written" in error_of(capsys)
    assert main(["inspect", str(folder), "--no-verify"]) == 0
    assert "TEXT 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("schema_version", 99, "this version reads shards of schema 2 (got 99)"),
        ("padding", 1, "the manifest's padding cannot be used"),
    ],
)
def test_a_manifest_of_another_version_is_refused(folder, capsys, field, value, message):
    write_manifest(folder, {**read_manifest(folder), field: value})

    status = main(["inspect", str(folder)])

    assert status == 2
    assert message in error_of(capsys)


def test_an_empty_split_is_named(folder, capsys):
    manifest = read_manifest(folder)
    manifest["splits"]["validation"]["files"] = []
    write_manifest(folder, manifest)

    status = main(["inspect", str(folder)])

    assert status == 2
    assert "the validation split has no rows" in error_of(capsys)


@pytest.mark.slow
def test_inspect_loads_neither_ray_nor_torch_and_stops_with_its_reader(folder):
    code = (
        "import sys; from pipeline.__main__ import main; status = main(sys.argv[1:]);"
        "sys.exit(status or bool({'ray', 'torch', 'matplotlib'} & set(sys.modules)))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "inspect", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()

    errors = process.stderr.read()
    process.stderr.close()

    assert process.wait(timeout=60) == 0
    assert errors == b""


def test_help_teaches_with_examples(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--help"])

    text = capsys.readouterr().out
    assert "textlane inspect outputs/demo_cpu/shards" in text
    assert "--no-verify" in text
    assert r"\x1b" in text
