"""What the checks on a device are made of: models, batches, steps and whole trainings."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_rows import Rows, write_rows

from pipeline.config import JobConfig, ModelSettings, TrainSettings
from pipeline.contract.shards import load_shards
from pipeline.model.architecture import build_random_architecture
from pipeline.model.weights import build_new_model
from pipeline.train.backoff import StepRunner
from pipeline.train.group import SingleGroup, seed_step
from pipeline.train.history import StepRecord
from pipeline.train.loop import run_training
from pipeline.train.micro_batches import MicroBatch
from pipeline.train.run import open_run, plan_run
from pipeline.train.step import Optimisation, StepResult
from pipeline.train.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the checks are."""

    hidden_size: int
    num_layers: int
    vocab_size: int
    seq_len: int
    rows: int
    """Of one batch."""
    steps: int
    """Of a measured training."""


FULL = Sizes(hidden_size=768, num_layers=12, vocab_size=30_522, seq_len=256, rows=64, steps=60)
QUICK = Sizes(hidden_size=32, num_layers=2, vocab_size=300, seq_len=16, rows=8, steps=7)

_LR = 1e-4
_HEAD_WIDTH = 64


class StoppedError(Exception):
    """Ends a training in the middle."""


def build_model(sizes: Sizes) -> torch.nn.Module:
    """Return a model from the seed, without dropout."""
    settings = ModelSettings(
        max_seq_len=sizes.seq_len,
        hidden_size=sizes.hidden_size,
        num_layers=sizes.num_layers,
        num_heads=_num_heads(sizes),
        dropout=0.0,
    )
    architecture = build_random_architecture(
        settings,
        vocab_size=sizes.vocab_size,
        task="sequence_classification",
        num_labels=2,
        pad_token_id=0,
    )
    return build_new_model(architecture, seed=0, pretrained=None)[0].train()


def build_state(
    device: torch.device, sizes: Sizes, *, precision: str = "fp32", **settings: Any
) -> Optimisation:
    """Return a new model with its optimiser on the device."""
    chosen = TrainSettings(precision=precision, **settings)
    state = Optimisation(build_model(sizes), chosen, device=device)
    state.set_lr(_LR)
    return state


def build_runner(
    state: Optimisation, micro_batch: int, *, told: list[str] | None = None
) -> StepRunner:
    """Return what runs steps; it puts into ``told`` what it says of memory."""
    return StepRunner(
        state,
        group=SingleGroup(),
        micro_batch=micro_batch,
        on_out_of_memory=lambda message, _: (told if told is not None else []).append(message),
    )


def build_batch(sizes: Sizes) -> MicroBatch:
    """Return rows of full length, the worst that a pass can meet."""
    generator = np.random.default_rng(0)
    ids = generator.integers(4, sizes.vocab_size, size=(sizes.rows, sizes.seq_len))
    return MicroBatch(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.ones_like(torch.from_numpy(ids)),
        labels=torch.from_numpy(generator.integers(0, 2, size=sizes.rows)),
        row_ids=tuple(range(sizes.rows)),
    )


def run_step(runner: StepRunner, batch: MicroBatch, *, step: int) -> StepResult:
    """Run one step."""
    return runner.run([batch], begin=partial(seed_step, 0, step=step, rank=0), step=step)


def sum_of(records: list[StepRecord], name: str) -> float:
    """Return a figure summed over steps."""
    return float(sum(getattr(record, name) for record in records))


def train(run: TrainingRun, device: torch.device, **options: Any) -> int:
    """Run the plain loop."""
    return run_training(run, group=SingleGroup(), device=device, num_threads=1, **options)


def stop_at(run: TrainingRun, device: torch.device, *, step: int) -> None:
    """Train until the checkpoint of a step."""

    def stop(record: StepRecord) -> None:
        if record.step == step:
            raise StoppedError

    try:
        train(run, device, on_checkpoint=stop)
    except StoppedError:
        return
    raise AssertionError(f"the training ended without a checkpoint after step {step}")


def final_weights(run: TrainingRun) -> dict[str, torch.Tensor]:
    """Return the final checkpoint's model."""
    [path] = run.checkpoint_dir.glob(f"step_{run.total_steps}_*.pt")
    weights: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["model"]
    return weights


def open_training(
    rows: Rows,
    folder: Path,
    sizes: Sizes,
    *,
    device: torch.device,
    precision: str = "fp32",
    every: int = 10**9,
) -> TrainingRun:
    """Write the rows as shards and open a training of one epoch."""
    model = {name: getattr(sizes, name) for name in ("hidden_size", "num_layers")}
    job = JobConfig.model_validate(
        {
            "name": "gpu",
            "output_dir": str(folder),
            "data": {"files": ["none.csv"]},
            "model": {"max_seq_len": sizes.seq_len, "num_heads": _num_heads(sizes), **model},
            "train": {
                "epochs": 1,
                "global_batch": sizes.rows,
                "micro_batch": sizes.rows,
                "precision": precision,
                "checkpoint_every_steps": every,
                "validate_every_steps": 0,
            },
            "ray": {"use_gpu": device.type == "cuda"},
        }
    )
    write_rows(rows, job)
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    open_run(run, shards, force=True)
    return run


def _num_heads(sizes: Sizes) -> int:
    return max(1, sizes.hidden_size // _HEAD_WIDTH)
