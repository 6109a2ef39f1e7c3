"""Trains the tiny job in processes of its own that die at chosen moments.

The moments are found without touching the code under test: by Python's audit events (files
opened and renamed) and by torch's global hooks (forward passes, updates).
"""

import contextlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import zlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import torch
from torch import distributed
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from pipeline.config import JobConfig
from pipeline.contract.folder import read_json, read_manifest, sha256_file
from pipeline.model.classifier import TextClassifier
from pipeline.train.group import DistributedGroup, SingleGroup
from pipeline.train.history import HISTORY_NAME
from pipeline.train.loop import TrainingRun, run_training
from pipeline.train.run import train

_CUT_BYTES = 20_000
"""Where the writing of a checkpoint is cut: about half of the tiny model's file."""
_NOT_OF_THE_TRAINING = ("seconds", "memory")
_CONTEXT = multiprocessing.get_context("forkserver")
# What a process would import itself, seconds each time; only what starts no threads.
_CONTEXT.set_forkserver_preload(["torch", "torch._dynamo", "pipeline.train.run"])


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When a process dies."""

    event: Literal["half_written", "not_renamed", "not_in_manifest", "in_forward", "after_update"]
    """In the bytes of a step's checkpoint; all written, but under its temporary name; under its
    name, but not in the manifest; in a forward pass; after the update, before anything else."""
    step: int
    micro_batch: int = 1
    """Forward pass of the step, from 1."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One rank of several processes."""

    rank: int
    world_size: int
    meeting: Path
    """File over which the processes find each other."""


def start_alone(job: JobConfig, *, log: Path, moment: Moment | None = None):
    """Start the whole train stage, without Ray, in a process of its own."""
    return _start(_train_alone, job, job.checkpoint_dir, log, moment)


def start_member(run: TrainingRun, member: Member, *, log: Path, moment: Moment | None = None):
    """Start one rank of the loop; the folder must be open already."""
    return _start(_train_together, (run, member), run.checkpoint_dir, log, moment)


def _start(work, task, folder, log, moment):
    log.parent.mkdir(parents=True, exist_ok=True)
    process = _CONTEXT.Process(target=_live, args=(work, task, folder, log, moment), daemon=True)
    process.start()
    return process


def finish(process, *, log: Path, exit_codes=(0,), patience_s=120.0):
    """Wait for a process and check how it ended."""
    process.join(patience_s)
    ended = process.exitcode
    if ended is None:
        process.kill()
        process.join()
    assert ended in exit_codes, (ended, log.with_suffix(".txt").read_text())


def kill_together(run: TrainingRun, folder: Path, *, world_size: int, moment: Moment) -> None:
    """Let the last rank die; the others fail, or are ended as Ray would end them."""
    *others, dying = start_together(run, folder, world_size=world_size, moment=moment)
    finish(dying, log=folder / f"{world_size - 1}.jsonl", exit_codes=(-signal.SIGKILL,))
    for process in others:
        process.join(5.0)
        if process.exitcode is None:
            process.kill()
            process.join()
        assert process.exitcode != 0


def start_together(run: TrainingRun, folder: Path, *, world_size: int, moment: Moment | None):
    """Start all ranks; the moment is the last one's."""
    folder.mkdir(parents=True)
    members = [
        Member(rank=rank, world_size=world_size, meeting=folder / "meeting")
        for rank in range(world_size)
    ]
    return [
        start_member(
            run,
            member,
            log=folder / f"{member.rank}.jsonl",
            moment=moment if member.rank == world_size - 1 else None,
        )
        for member in members
    ]


def learned(folder: Path):
    """Return what a training is judged by: its lines without times, its final tensors."""
    lines = {}
    for name in (HISTORY_NAME, "validation.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            lines[name] = list(map(_timeless, (folder / name).read_text().splitlines()))
    manifest = read_manifest(folder)
    assert manifest["is_finished"]
    state = torch.load(folder / _final_file(manifest), weights_only=True)
    return lines, dict(_tensors({"model": state["model"], "optimizer": state["optimizer"]}))


def demand_equal(found, expected) -> None:
    """Compare two results of :func:`learned` bit for bit."""
    assert found[0] == expected[0]
    assert found[1].keys() == expected[1].keys()
    different = [name for name, value in found[1].items() if not value.equal(expected[1][name])]
    assert different == []


def demand_sound(folder: Path) -> None:
    """Check what a kill left: every file of the manifest is whole, one for a step."""
    entries = read_json(folder / "manifest.json")["checkpoints"]
    assert len({entry["step"] for entry in entries}) == len(entries)
    for entry in entries:
        assert sha256_file(folder / entry["file"]) == entry["sha256"]


def read_order(logs):
    """Return step → rows, as every log of one start has them together, in the ranks' order."""
    order = {}
    for log in logs:
        for line in log.read_text().splitlines():
            step, rows = json.loads(line)
            order.setdefault(step, []).extend(rows)
    return order


def _timeless(line):
    values = json.loads(line)
    return {k: v for k, v in values.items() if not k.startswith(_NOT_OF_THE_TRAINING)}


def _final_file(manifest):
    return next(e["file"] for e in manifest["checkpoints"] if e["step"] == manifest["total_steps"])


def _tensors(value, name=""):
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _tensors(inner, f"{name}.{key}")


def _live(work, task, folder, log, moment):
    with log.with_suffix(".txt").open("w") as shown:
        os.dup2(shown.fileno(), sys.stdout.fileno())
        os.dup2(shown.fileno(), sys.stderr.fileno())

    def fit(run, group):
        # From here on every forward pass in train mode is one of a step.
        done = _steps_done(folder)
        _keep_order(log, done)
        if moment is not None:
            _die_at(moment, done)
        run_training(run, group=group, device=torch.device("cpu"), num_threads=1)

    work(task, fit)


def _train_alone(job, fit):
    train(job, fit=lambda run: fit(run, SingleGroup()))


def _train_together(task, fit):
    run, member = task
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{member.meeting}",
        rank=member.rank,
        world_size=member.world_size,
        timeout=timedelta(seconds=30),
    )
    fit(run, DistributedGroup())
    distributed.destroy_process_group()


class _Done:
    """Steps that are behind the process, and forward passes of the one in work."""

    def __init__(self, step):
        self.step, self.forwards = step, 0


def _steps_done(folder):
    entries = read_manifest(folder)["checkpoints"]
    return _Done(max((entry["step"] for entry in entries), default=0))


def _keep_order(log, done):
    """Write the rows of every step that was finished, one number for a row."""
    rows = []
    file = log.open("a")

    def see_rows(module, inputs):
        if isinstance(module, TextClassifier) and module.training:
            done.forwards += 1
            ids, mask = (tensor.cpu().numpy() for tensor in inputs)
            pairs = zip(ids, mask, strict=True)
            rows.extend(zlib.crc32(row[keep == 1].tobytes()) for row, keep in pairs)

    def see_update(optimizer, arguments, keywords):
        if not done.forwards:  # The optimiser was only made to allocate what it keeps.
            return
        done.step, done.forwards = done.step + 1, 0
        file.write(json.dumps([done.step, rows]) + "\n")
        file.flush()
        rows.clear()

    register_module_forward_pre_hook(see_rows)
    register_optimizer_step_post_hook(see_update)


def _die_at(moment, done):
    if moment.event == "in_forward":

        def see_forward(module, inputs):
            if done.step + 1 == moment.step and done.forwards == moment.micro_batch:
                _die()

        register_module_forward_pre_hook(see_forward)
    elif moment.event == "after_update":

        def see_update(optimizer, arguments, keywords):
            if done.step == moment.step:
                _die()

        register_optimizer_step_post_hook(see_update)
    else:
        _die_in_saving(moment)


def _die_in_saving(moment):
    beginning = f"step_{moment.step}_"
    is_named = False
    # Over the limit the kernel ends the process in the middle of a write.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def see(event, arguments):
        nonlocal is_named
        if event == "open" and moment.event == "half_written":
            path, _, flags = arguments
            if _name(path).startswith(beginning) and flags & os.O_ACCMODE != os.O_RDONLY:
                resource.setrlimit(resource.RLIMIT_FSIZE, (_CUT_BYTES, _CUT_BYTES))
        if event == "os.rename":
            target = _name(arguments[1])
            if target.startswith(beginning):
                if moment.event == "not_renamed":
                    _die()
                is_named = True
            elif target == "manifest.json" and is_named and moment.event == "not_in_manifest":
                _die()

    sys.addaudithook(see)


def _name(path):
    return Path(path).name if isinstance(path, str | os.PathLike) else ""


def _die():
    os.kill(os.getpid(), signal.SIGKILL)
