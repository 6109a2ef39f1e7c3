"""A training that a drill starts as a person does, and what it shows on its way."""

import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import train_samples
import yaml
from nodes import ROOT, wait_for

from pipeline.train.events import read_events
from pipeline.train.history import HISTORY_NAME, read_latest_records


def build_job(folder, *, num_workers, **train):
    """Write shards and job of a tiny training without dropout, whose draws differ by rank."""
    job = train_samples.build_job(folder, global_batch=8, **train)
    model = job.model.model_copy(update={"dropout": 0.0})
    ray = job.ray.model_copy(update={"num_workers": num_workers, "threads_per_worker": 1})
    job = job.model_copy(update={"model": model, "ray": ray})
    train_samples.write_shards(job, rows=36)
    return job


class Training:
    """The running command."""

    def __init__(self, job, process, log):
        self.job, self.process, self.log = job, process, log

    def last_step(self):
        records = read_latest_records(self.job.checkpoint_dir)
        return records[-1].step if records else 0

    def wait_for_step(self, step, *, within_s=90.0):
        """Return the seconds that passed until a step after it was done."""
        began_s = time.monotonic()
        wait_for(lambda: self._has_passed(step), within_s=within_s, why=self.log.read_text)
        return time.monotonic() - began_s

    def _has_passed(self, step):
        assert self.process.poll() is None, self.log.read_text()
        return self.last_step() > step

    def wait_for_event(self, kind, *, within_s=90.0):
        def find():
            assert self.process.poll() is None, self.log.read_text()
            return next((one for one in self.events() if one.kind == kind), None)

        return wait_for(find, within_s=within_s, why=self.log.read_text)

    def events(self):
        return read_events(self.job.checkpoint_dir)

    def pid_of_first_rank(self):
        """Return the worker that writes the history."""
        path = self.job.checkpoint_dir / HISTORY_NAME
        for folder in Path("/proc").glob("[0-9]*/fd"):
            try:
                if any(link.resolve() == path for link in folder.iterdir()):
                    return int(folder.parent.name)
            except OSError:
                continue  # It ended while we looked.
        raise AssertionError("nobody writes the history")

    def finish(self, *, within_s=90.0):
        assert self.process.wait(timeout=within_s) == 0, self.log.read_text()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=60) == 130, self.log.read_text()


@contextmanager
def training(job, cluster):
    """Run `textlane train` on the head's host for the length of the block."""
    config = job.shards_dir.parent / "job.yaml"
    config.write_text(yaml.safe_dump(job.model_dump(mode="json")))
    log = config.with_suffix(".log")
    environ = {**cluster.head.environ, "RAY_ADDRESS": cluster.gcs}
    with log.open("wb") as output:
        process = subprocess.Popen(
            cluster.head.command("-m", "pipeline", "train", "--config", str(config)),
            cwd=ROOT,
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=_heed_interrupts,
        )
    try:
        yield Training(job, process, log)
    finally:
        process.kill()
        process.wait()


def _heed_interrupts():
    # A shell starts background jobs with it ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
