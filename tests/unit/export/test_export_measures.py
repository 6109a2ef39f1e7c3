import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.export.batch_shift import measure_batch_shift
from pipeline.export.provenance import source_commit

_ROWS = [np.arange(1, length + 1, dtype=np.int32) for length in (2, 5, 9)]


def _shift(run: object) -> float:
    return measure_batch_shift(run, _ROWS, probes=3, pad_token_id=0, max_seq_len=12)  # type: ignore[arg-type]


def _sum_of_own_tokens(input_ids: IntArray, mask: IntArray) -> NDArray[np.float32]:
    return (input_ids * mask).sum(axis=1, keepdims=True).astype(np.float32)


def _sum_and_batch_width(input_ids: IntArray, mask: IntArray) -> NDArray[np.float32]:
    return _sum_of_own_tokens(input_ids, mask) + np.float32(0.25 * input_ids.shape[1])


def _each_token(input_ids: IntArray, mask: IntArray) -> NDArray[np.float32]:
    return np.where(mask == 1, input_ids, 99)[:, :, None].astype(np.float32)


def test_a_model_that_ignores_its_batch_does_not_shift() -> None:
    assert _shift(_sum_of_own_tokens) == 0.0


def test_the_largest_shift_of_any_text_is_returned() -> None:
    assert _shift(_sum_and_batch_width) == pytest.approx(0.25 * (12 - 2))


def test_token_logits_of_padding_are_left_out() -> None:
    assert _shift(_each_token) == 0.0


def test_the_commit_is_that_of_the_checkout_that_tracks_the_file(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    (tmp_path / "tracked.py").write_text("")
    (tmp_path / "stray.py").write_text("")
    git("init", "-q")
    git("add", "tracked.py")
    git("commit", "-q", "-m", "first")

    assert source_commit(tmp_path / "tracked.py") == git("rev-parse", "HEAD")
    assert source_commit(tmp_path / "stray.py") is None


def test_there_is_no_commit_outside_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("")

    assert source_commit(tmp_path / "file.py") is None
