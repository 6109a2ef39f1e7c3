"""Training through Ray Train gives what the plain loop gives, with one worker and with two."""

import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.config import JobConfig
from pipeline.contract.errors import TrainingError
from pipeline.contract.folder import hash_files, read_manifest, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, SHARDS_SCHEMA_VERSION, write_shard
from pipeline.contract.tokenization import TextEncoder, TextSettings
from pipeline.model.trained import load_trained
from pipeline.train.group import SingleGroup
from pipeline.train.history import read_history
from pipeline.train.loop import run_training
from pipeline.train.run import train

pytestmark = pytest.mark.ray

ROWS = 22
MAX_SEQ_LEN = 12


def build_job(output_dir, *, num_workers=1, base_lr=0.1, loader_workers=0):
    values = {
        "name": "tiny",
        "output_dir": str(output_dir),
        "seed": 5,
        "data": {"files": ["none.csv"]},
        # Dropout draws differ by rank; without it the workers only share out the same sum.
        "model": {
            "max_seq_len": MAX_SEQ_LEN,
            "hidden_size": 16,
            "num_layers": 1,
            "num_heads": 2,
            "dropout": 0.0,
        },
        "train": {
            "epochs": 2,
            "global_batch": 4,
            "micro_batch": 2,
            "base_lr": base_lr,
            "loader_workers": loader_workers,
            "checkpoint_every_steps": 5,
        },
        "ray": {"num_workers": num_workers, "threads_per_worker": 1, "max_failures": 0},
    }
    return JobConfig.model_validate(values)


def write_shards(job):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{index}" for index in range(36))]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    encoder = TextEncoder(tokenizer, TextSettings(max_seq_len=MAX_SEQ_LEN))
    generator = np.random.default_rng(0)
    rows = []
    for row_id in range(ROWS):
        ids = generator.integers(4, 40, size=generator.integers(3, MAX_SEQ_LEN))
        text = " ".join(words[index] for index in ids)
        labels = [int(ids[0]) % 2]
        rows.append(
            {
                "row_id": row_id,
                "window": 0,
                "text": text,
                "text_pair": "",
                "input_ids": ids,
                "labels": labels,
            }
        )
    write_shard(job.shards_dir / "train/rows.arrow", pa.Table.from_pylist(rows, SHARD_SCHEMA))
    encoder.save(job.shards_dir)
    manifest = {
        "schema_version": SHARDS_SCHEMA_VERSION,
        "fingerprint": "shards-of-the-test",
        "task": job.task.value,
        "labels": ["even", "odd"],
        "text_settings": asdict(encoder.settings),
        "bucket_edges": [MAX_SEQ_LEN],
        "splits": {"train": {"files": ["train/rows.arrow"], "rows": ROWS}},
        "files": hash_files(job.shards_dir),
    }
    write_manifest(job.shards_dir, manifest)


def losses_of(job):
    return [record.loss for record in read_history(job.checkpoint_dir)]


def fit_without_ray(run):
    run_training(run, group=SingleGroup(), device=torch.device("cpu"), num_threads=1)


def test_workers_of_ray_repeat_the_losses_of_the_plain_loop(tmp_path, ray_cluster):
    jobs = {
        "plain": build_job(tmp_path / "plain"),
        "one": build_job(tmp_path / "one"),
        "two": build_job(tmp_path / "two", num_workers=2, loader_workers=1),
    }
    for job in jobs.values():
        write_shards(job)

    train(jobs["plain"], fit=fit_without_ray)
    train(jobs["one"])
    train(jobs["two"])

    losses = {name: losses_of(job) for name, job in jobs.items()}
    assert len(losses["plain"]) == 12
    assert losses["one"] == losses["plain"]
    # Another order of the same sums in fp32.
    assert losses["two"] == pytest.approx(losses["plain"], abs=1e-5)
    ids, mask = torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.int64)
    one, two = (load_trained(jobs[name].checkpoint_dir).model(ids, mask) for name in ("one", "two"))
    torch.testing.assert_close(two, one, atol=1e-4, rtol=0)
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["checkpoint", "shards"]


def test_loss_that_is_not_finite_stops_without_a_retry_and_names_rows(tmp_path, ray_cluster):
    job = build_job(tmp_path, base_lr=1e30)
    write_shards(job)

    with pytest.raises(TrainingError, match=r"rows \d+.*is not finite.*Lower train\.base_lr"):
        train(job.model_copy(update={"ray": job.ray.model_copy(update={"max_failures": 3})}))

    assert read_manifest(job.checkpoint_dir)["is_finished"] is False
    assert 0 < len(read_history(job.checkpoint_dir)) < 12
    assert not json.loads((job.checkpoint_dir / "manifest.json").read_text())["checkpoints"]


def test_more_workers_than_cpus_are_refused_at_once(tmp_path, ray_cluster):
    job = build_job(tmp_path, num_workers=99)
    write_shards(job)

    with pytest.raises(TrainingError, match=r"cluster has \d+ CPU for ray\.num_workers 99"):
        train(job)
