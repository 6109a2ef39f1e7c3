"""Training through Ray Train gives what the plain loop gives, with one worker and with two."""

import os
import signal
import threading
import time
import urllib.request
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from mlflow.tracking import MlflowClient
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.config import JobConfig
from pipeline.contract.errors import ConfigError, TrainingError
from pipeline.contract.folder import hash_files, read_manifest, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, SHARDS_SCHEMA_VERSION, load_shards, write_shard
from pipeline.contract.tokenization import TextEncoder, TextSettings
from pipeline.model.trained import load_trained
from pipeline.train.checkpoint import find_latest_checkpoint, load_checkpoint
from pipeline.train.events import read_events
from pipeline.train.group import SingleGroup
from pipeline.train.history import read_history, read_latest_records, read_validations
from pipeline.train.loop import run_training
from pipeline.train.resume_rules import open_run
from pipeline.train.run import plan_run, train
from pipeline.train.trainer import fit_on_ray

pytestmark = pytest.mark.ray

ROWS = 22
MAX_SEQ_LEN = 12


def build_job(output_dir, *, num_workers=1, max_failures=0, mlflow_uri=None, **train):
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
            "base_lr": 0.1,
            "checkpoint_every_steps": 5,
            **train,
        },
        "ray": {
            "num_workers": num_workers,
            "threads_per_worker": 1,
            "max_failures": max_failures,
        },
        "mlflow": {"tracking_uri": mlflow_uri},
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
    table = pa.Table.from_pylist(rows, SHARD_SCHEMA)
    for split in ("train", "validation"):
        write_shard(job.shards_dir / split / "rows.arrow", table)
    encoder.save(job.shards_dir)
    manifest = {
        "schema_version": SHARDS_SCHEMA_VERSION,
        "fingerprint": "shards-of-the-test",
        "task": job.task.value,
        "labels": ["even", "odd"],
        "text_settings": asdict(encoder.settings),
        "bucket_edges": [MAX_SEQ_LEN],
        "splits": {
            split: {"files": [f"{split}/rows.arrow"], "rows": ROWS}
            for split in ("train", "validation")
        },
        "files": hash_files(job.shards_dir),
    }
    write_manifest(job.shards_dir, manifest)


def figures_of(job):
    measured = read_validations(job.checkpoint_dir)
    return [(m.step, m.loss, m.accuracy, m.macro_f1) for m in measured]


def losses_of(job):
    return [record.loss for record in read_history(job.checkpoint_dir)]


def fit_without_ray(run):
    run_training(run, group=SingleGroup(), device=torch.device("cpu"), num_threads=1)


def workers_here():
    """Return the ids of the training workers of the cluster that this process has started."""
    parents, workers = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # It ended while we looked.
        if line.startswith(b"ray::") and b"RayTrainWorker" in line:
            workers.append(int(folder.name))

    def is_ours(pid):
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in workers if is_ours(pid)]


def kill_a_worker(job, *, after_step):
    """Kill one worker in the middle of its work, from a thread."""
    killed = []

    def watch():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not killed:
            records = read_latest_records(job.checkpoint_dir)
            if records and records[-1].step > after_step:
                killed.append(workers_here()[-1])
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread, killed


def write_metrics():
    from pipeline.train.ray_metrics import RayMetricsSink

    sink = RayMetricsSink("job-of-the-test", clock=lambda: 0.0)
    sink.write_figures({"loss": 0.5, "skipped_steps_total": 2.0}, step=1)
    sink.write_figures({"loss": 0.25, "skipped_steps_total": 3.0}, step=2)
    sink.write_figures({"validation_loss": 0.125}, step=2)
    sink.close()


def read_metrics(found):
    """Collect what Ray exports, which it does every 10 s and once for each gauge that was set."""
    import ray

    port = ray.nodes()[0]["MetricsExportPort"]
    deadline = time.monotonic() + 60
    while len(found) < 3 and time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        mine = (line for line in lines if 'job="job-of-the-test"' in line)
        found.update({line.partition("{")[0]: float(line.rsplit(" ", 1)[1]) for line in mine})
        time.sleep(0.5)


def test_killed_worker_of_ray_ends_at_the_losses_of_the_plain_loop(tmp_path, ray_cluster, capsys):
    train_settings = {"epochs": 150, "validate_every_steps": 150, "checkpoint_every_steps": 50}
    plain = build_job(tmp_path / "plain", **train_settings)
    killed = build_job(
        tmp_path / "killed",
        max_failures=1,
        mlflow_uri=f"file://{tmp_path}/mlruns",
        **train_settings,
    )
    for job in (plain, killed):
        write_shards(job)

    train(plain, fit=fit_without_ray)
    write_metrics()
    metrics = {}
    reader = threading.Thread(target=read_metrics, args=(metrics,))
    reader.start()
    killer, pids = kill_a_worker(killed, after_step=60)
    train(killed)
    killer.join()
    reader.join()

    assert len(pids) == 1
    told = [event.kind for event in read_events(killed.checkpoint_dir)]
    assert [kind for kind in told if kind in ("resumed", "preempted", "mlflow")] == ["resumed"]
    assert len(losses_of(plain)) == 900
    assert losses_of(killed) == losses_of(plain)
    assert figures_of(killed) == figures_of(plain)
    assert "resumed: " in capsys.readouterr().err
    assert len(list((killed.checkpoint_dir / "tensorboard").iterdir())) == 2
    assert metrics == {
        "ray_textlane_train_loss": 0.25,
        "ray_textlane_train_skipped_steps_total": 3.0,
        "ray_textlane_train_validation_loss": 0.125,
    }
    client = MlflowClient(f"file://{tmp_path}/mlruns")
    run = client.get_run((killed.checkpoint_dir / "mlflow_run.txt").read_text().strip())
    assert run.info.status == "FINISHED"
    assert run.data.metrics["train/loss"] == losses_of(plain)[-1]


def test_range_of_workers_takes_what_the_cluster_has_and_repeats_the_plain_loop(
    tmp_path, ray_cluster
):
    plain = build_job(tmp_path / "plain")
    two = build_job(tmp_path / "two", num_workers=[1, 2], loader_workers=1)
    for job in (plain, two):
        write_shards(job)

    train(plain, fit=fit_without_ray)
    train(two)

    # Another order of the same sums in fp32.
    assert losses_of(two) == pytest.approx(losses_of(plain), abs=1e-5)
    assert len(losses_of(two)) == 12
    assert figures_of(two) == [pytest.approx(figures, abs=1e-5) for figures in figures_of(plain)]
    last = load_checkpoint(find_latest_checkpoint(two.checkpoint_dir))
    assert len(last["rng"]) == 2  # One for each worker.
    ids, mask = torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.int64)
    logits = [load_trained(job.checkpoint_dir).model(ids, mask) for job in (plain, two)]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=0)
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["checkpoint", "shards"]


def test_loss_that_is_not_finite_stops_without_a_retry_and_names_rows(tmp_path, ray_cluster):
    job = build_job(tmp_path, base_lr=1e30, max_failures=3)
    write_shards(job)

    with pytest.raises(TrainingError, match=r"rows \d+.*is not finite.*Lower train\.base_lr"):
        train(job)

    assert read_manifest(job.checkpoint_dir)["is_finished"] is False
    num_steps = len(read_history(job.checkpoint_dir))
    assert 0 < num_steps < 12
    (before,) = read_manifest(job.checkpoint_dir)["checkpoints"]
    assert before["step"] == num_steps
    assert [event.kind for event in read_events(job.checkpoint_dir)] == ["not_finite"]


def test_model_that_the_workers_cannot_build_stops_without_a_retry(tmp_path, ray_cluster):
    job = build_job(tmp_path, max_failures=3)
    write_shards(job)
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    open_run(run, shards, force=False)
    elsewhere = replace(run.architecture, factory="not_on_this_node:build")

    with pytest.raises(ConfigError, match="not_on_this_node"):
        fit_on_ray(replace(run, architecture=elsewhere))


def test_more_workers_than_cpus_are_refused_at_once(tmp_path, ray_cluster):
    job = build_job(tmp_path, num_workers=99)
    write_shards(job)

    with pytest.raises(TrainingError, match=r"cluster has \d+ CPU for ray\.num_workers 99"):
        train(job)


def test_ray_still_has_the_door_through_which_it_would_take_ctrl_c():
    # trainer.py overrides it; under another name Ray would swallow the first Ctrl-C again.
    from ray.train.torch import TorchTrainer

    assert callable(TorchTrainer._register_sigint_handler)
