"""The gate's accuracies and the batch shift, measured again on shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_samples import LABELS, MAX_SEQ_LEN, write_job_folders
from verify_samples import build_manifest

from pipeline.contract.bundle import BundleManifest
from pipeline.contract.errors import ExportError, FolderError, MissingFileError
from pipeline.contract.shards import load_shards
from pipeline.export.shards_check import check_on_shards
from pipeline.quality import labels_of


@pytest.fixture(scope="module")
def shards_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job_folders(tmp_path_factory.mktemp("job")).shards_dir


def _first_label(input_ids, mask):
    return np.tile(np.array([1, 0, 0], dtype=np.float32), (len(input_ids), 1))


_MODELS = {"model.onnx": _first_label, "model_int8.onnx": _first_label}


def _share_of_first_label(shards_dir: Path, split: str) -> float:
    labels = labels_of(load_shards(shards_dir).split(split))
    return float(np.mean([row[0] == 0 for row in labels]))


def _manifest(*, data_hash: str = "shards-1", **quality: Any) -> BundleManifest:
    return build_manifest(
        labels=list(LABELS),
        max_seq_len=MAX_SEQ_LEN,
        provenance={"data_hash": data_hash},
        quality={"split": "test", "batch_rows": 8, "parity": {"atol": 1e-3}, **quality},
    )


def _gated(fp32: float, int8: float) -> BundleManifest:
    return _manifest(gate={"fp32_accuracy": fp32, "int8_accuracy": int8})


def test_the_accuracies_of_the_gate_are_found_again(shards_dir: Path) -> None:
    share = _share_of_first_label(shards_dir, "validation")

    lines = check_on_shards(_MODELS, _gated(share, share), shards_dir=shards_dir)

    assert [line.partition(":")[0] for line in lines] == 2 * ["model.onnx", "model_int8.onnx"]
    assert f"accuracy {share:.4f} on 40 validation rows, {share:.4f} at export" in lines[1]


def test_int8_may_flip_two_rows_and_fp32_one(shards_dir: Path) -> None:
    share, row = _share_of_first_label(shards_dir, "validation"), 1 / 40

    check_on_shards(_MODELS, _gated(share + 0.9 * row, share - 1.9 * row), shards_dir=shards_dir)

    with pytest.raises(ExportError, match=r"model_int8\.onnx: its accuracy on 40 validation rows"):
        check_on_shards(_MODELS, _gated(share, share + 2.1 * row), shards_dir=shards_dir)
    with pytest.raises(ExportError, match=r"model\.onnx: its accuracy on 40 validation rows"):
        check_on_shards(_MODELS, _gated(share + 1.1 * row, share), shards_dir=shards_dir)


def test_without_int8_the_figures_of_fp32_are_repeated(shards_dir: Path) -> None:
    share = _share_of_first_label(shards_dir, "test")
    manifest = _manifest(gate=None, accuracy={"model.onnx": share})

    lines = check_on_shards({"model.onnx": _first_label}, manifest, shards_dir=shards_dir)

    assert len(lines) == 2
    assert "on 20 test rows" in lines[0]


def test_an_answer_may_not_move_further_with_its_batch_than_at_export(shards_dir: Path) -> None:
    def by_width(input_ids, mask):
        return _first_label(input_ids, mask) + np.float32(0.01) * (
            input_ids.shape[1] == MAX_SEQ_LEN
        )

    share = _share_of_first_label(shards_dir, "validation")

    with pytest.raises(
        ExportError, match=r"model\.onnx: a logit moves with its batch by more than"
    ):
        check_on_shards(
            {**_MODELS, "model.onnx": by_width}, _gated(share, share), shards_dir=shards_dir
        )


def test_shards_of_another_job_are_refused(shards_dir: Path) -> None:
    with pytest.raises(FolderError, match="was made from other shards, whose fingerprint is other"):
        check_on_shards(_MODELS, _manifest(data_hash="other"), shards_dir=shards_dir)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"manifest\.json"):
        check_on_shards(_MODELS, _gated(1.0, 1.0), shards_dir=tmp_path)
