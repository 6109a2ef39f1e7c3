import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.batching import IntArray
from pipeline.export.latency import LATENCY_REPEATS, measure_latency
from pipeline.export.provenance import source_commit


def test_latency_is_the_median_in_milliseconds_at_the_stated_length() -> None:
    batches: list[tuple[int, ...]] = []
    now = 0.0

    def run(input_ids: IntArray, _mask: IntArray) -> NDArray[np.float32]:
        nonlocal now
        batches.append(input_ids.shape)
        # The first runs are the slow ones, as in life.
        now += 0.5 if batches.count(input_ids.shape) <= 2 else 0.001 * len(input_ids)
        return np.zeros((len(input_ids), 2), dtype=np.float32)

    figures = measure_latency(run, seq_len=7, vocab_size=30, clock=lambda: now)

    assert figures == {"batch_1": 1.0, "batch_32": 32.0, "seq_len": 7}
    assert set(batches) == {(1, 7), (32, 7)}
    assert len(batches) == sum(LATENCY_REPEATS.values()) + 4


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
