"""A submitted job that is killed, with its disk, and submitted again."""

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from functools import partial

from checkout import marked_processes

SUBMIT = (
    "RAY_AUTH_MODE=token ray job submit --address {address} --working-dir . --no-wait "
    "--submission-id {id} -- python -m pipeline run --config job_configs/entities_cpu.yaml "
    "--set output_dir={output} --set storage_path=file://{stored} --set storage_every_s=1 "
    "--set train.epochs=10000 --set train.checkpoint_every_steps=20"
)
ASK = "RAY_AUTH_MODE=token ray job {verb} --address {address} {id}"


def wait_for(find, timeout_s=120):
    """Return what ``find`` finds, once it finds something."""
    deadline = time.monotonic() + timeout_s
    while not (found := find()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.2)
    return found


def last_step(folder):
    """Return the step of the last checkpoint in a job's output, 0 where there is none."""
    with suppress(FileNotFoundError):
        entries = json.loads((folder / "checkpoint/manifest.json").read_text())["checkpoints"]
        return max((entry["step"] for entry in entries), default=0)
    return 0


def events(folder):
    with suppress(FileNotFoundError):
        lines = (folder / "checkpoint/events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]
    return []


def drill(run, folder, scratch, *, address="http://127.0.0.1:8265"):
    """Kill the job in mid-training and lose its disk; return what the second one said.

    Args:
        run: runs a command line in the checkout and returns its output.
        folder: where outputs go; the second job has another one than the first.
        scratch: whose mark the processes carry.
    """
    submit, ask = partial(SUBMIT.format, address=address), partial(ASK.format, address=address)
    first, second, stored = (folder / name for name in ("first", "second", "stored"))
    run(submit(id="first", output=first, stored=stored))
    wait_for(lambda: last_step(stored) >= 40)
    victims = [
        pid for pid, line in marked_processes(scratch).items() if f"output_dir={first}" in line
    ]
    reached = last_step(first)
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "failed" in run(ask(verb="status", id="first")).lower())
    shutil.rmtree(first, ignore_errors=True)
    kept = last_step(stored)
    again_s = time.monotonic()
    run(submit(id="second", output=second, stored=stored))
    (resumed,) = wait_for(lambda: [e for e in events(second) if e["kind"] == "resumed"])
    wait_for(lambda: last_step(second) > kept)
    print(
        f"killed after checkpoint {reached}, stored {kept}, went on from {resumed['step']}; "
        f"past it {time.monotonic() - again_s:.1f} s after it was submitted again"
    )
    run(ask(verb="stop", id="second"))
    stopped = last_step(stored)
    return kept, resumed["step"], stopped, run(ask(verb="logs", id="second"))
