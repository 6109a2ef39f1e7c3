"""From the start of a bare process to its first answer, and what it holds: no torch, no Ray."""

import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench_rows import make_rows
from export_graphs import NUM_LABELS, SUBJECTS, UNFUSED, Subject, write_graphs
from first_answer import PARTS
from profiles import profile_values

from pipeline.contract.bundle import (
    BUNDLE_SCHEMA_VERSION,
    FP32_NAME,
    INT8_NAME,
    BundleManifest,
    write_bundle,
)

pytestmark = pytest.mark.perf

ROOT = Path(__file__).parents[2]
PROCESS = Path(__file__).with_name("first_answer.py")
ROUNDS = 5
MAX_SEQ_LEN = 256
TEXT = " ".join(f"w{number}" for number in range(4, 36))


def write_models_bundle(target: Path, subject: Subject, graphs: Path) -> None:
    """Write a bundle of a subject's FP32 and INT8 models and a tokenizer of its vocabulary."""
    _, paths = write_graphs(subject, graphs)
    encoder = make_rows(1, max_seq_len=MAX_SEQ_LEN, vocab_size=subject.vocab_size).encoder

    def fill(folder: Path) -> None:
        encoder.save(folder)
        paths[UNFUSED].rename(folder / FP32_NAME)
        paths["INT8 tensor"].rename(folder / INT8_NAME)

    def describe(files: dict[str, str]) -> BundleManifest:
        shift = {"logit": 0.0, "probability": 0.0}
        return BundleManifest.model_validate(
            {
                "schema_version": BUNDLE_SCHEMA_VERSION,
                "name": "cold",
                "task": "sequence_classification",
                "labels": [f"label {number}" for number in range(NUM_LABELS)],
                "target": "cpu",
                "default_model": FP32_NAME,
                "batch_shift": {FP32_NAME: shift, INT8_NAME: shift},
                "seq_len_percentiles": [MAX_SEQ_LEN] * 101,
                "profile": profile_values([MAX_SEQ_LEN] * 101, ["label 0"]),
                "opset": 14,
                "pad_token_id": encoder.pad_token_id,
                "max_seq_len": MAX_SEQ_LEN,
                "strip_html": False,
                "takes_pairs": False,
                "text_fingerprint": encoder.fingerprint,
                "limits": {
                    "max_seq_len": MAX_SEQ_LEN,
                    "max_text_chars": 10_000,
                    "max_batch_rows": 32,
                },
                "quality": {},
                "provenance": {},
                "files": files,
            }
        )

    write_bundle(target, fill=fill, describe=describe)


def start_once(bundle: Path, model: str) -> dict[str, float]:
    """Return a fresh process's seconds by part, their total, and its memory in MiB."""
    command = [sys.executable, str(PROCESS), str(bundle), model, TEXT]
    started = time.time()
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["heavy"] == []
    assert all(map(math.isfinite, found["logits"]))
    ends = [started, *(found["ends"][part] for part in PARTS)]
    seconds = {part: ends[index + 1] - ends[index] for index, part in enumerate(PARTS)}
    return {**seconds, "total": ends[-1] - started, **found["memory_mib"]}


@pytest.mark.parametrize("name", ["tiny", "MiniLM", "BERT-base"])
def test_the_first_answer_needs_no_torch(name: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    (tmp_path / "graphs").mkdir()
    write_models_bundle(bundle, SUBJECTS[name], tmp_path / "graphs")
    rounds = 1 if name == "tiny" else ROUNDS

    starts = {FP32_NAME: [], INT8_NAME: []}
    for _ in range(rounds):
        for model, found in starts.items():
            found.append(start_once(bundle, model))

    columns = (*PARTS, "total")
    print(f"\n| {name}, s, medians of {rounds} | {' | '.join(columns)} | RSS, MiB | peak, MiB |")
    print("|---" * (len(columns) + 3) + "|")
    for model, found in starts.items():
        cells = [f"{statistics.median(start[part] for start in found):.3f}" for part in columns]
        cells += [
            f"{statistics.median(start[part] for start in found):.0f}"
            for part in ("VmRSS", "VmHWM")
        ]
        print(f"| {model} | {' | '.join(cells)} |")
