"""The same fine-tuning by different loops: ours, Hugging Face's Trainer, a bare torch loop.

Every contestant takes as many batches of its own order over the same rows.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from batch_samples import (
    BATCH_ROWS,
    grouped_order,
    plan_settings,
    random_order,
    sample_batches,
    sorted_order,
    tokens_of,
    typical_seed,
)
from bench_rows import PRETRAINED, Rows, write_rows
from timing import THREADS
from torch.nn import functional

from pipeline.config import JobConfig, resolve_location
from pipeline.contract.batching import IntArray, pad_rows
from pipeline.contract.shards import load_shards
from pipeline.data.plan import build_epoch_plan
from pipeline.model.weights import build_new_model
from pipeline.train.group import SingleGroup
from pipeline.train.loop import run_training
from pipeline.train.run import open_run, plan_run
from pipeline.train.training_run import TrainingRun

_LR = 5e-5


def run_trainer(rows: Rows, batches: list[IntArray], *, dropout: float) -> None:
    """Train with Hugging Face's Trainer on these batches."""
    dataset = [
        {
            "input_ids": rows.ids[index],
            "attention_mask": [1] * len(rows.ids[index]),
            "labels": rows.labels[index],
        }
        for batch in batches
        for index in batch
    ]
    folder = tempfile.mkdtemp()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(resolve_location(PRETRAINED))
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH_ROWS,
            num_train_epochs=1,
            learning_rate=_LR,
            # The order is made by the sampler's own function; see sample_batches.
            train_sampling_strategy="sequential",
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = transformers.Trainer(
            model=build_hf_model(dropout=dropout),
            args=arguments,
            train_dataset=dataset,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_hf_model(*, dropout: float) -> torch.nn.Module:
    """Return Hugging Face's class with the package's weights, in train mode."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        resolve_location(PRETRAINED),
        num_labels=2,
        attn_implementation="sdpa",
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return model.train()


def run_bare_loop(
    forward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    model: torch.nn.Module,
    rows: Rows,
    batches: list[IntArray],
) -> None:
    """Train with nothing around the step that a training would miss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR, fused=True)
    for batch in batches:
        ids, mask = pad_rows([np.array(rows.ids[index]) for index in batch], pad_value=0)
        labels = torch.tensor([rows.labels[index] for index in batch])
        logits = forward(torch.from_numpy(ids), torch.from_numpy(mask))
        functional.cross_entropy(logits, labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def run_bare_ours(run: TrainingRun, rows: Rows, batches: list[IntArray]) -> None:
    """Run the bare loop over our model."""
    torch.manual_seed(0)
    model, _ = build_new_model(run.architecture, seed=0, pretrained=run.pretrained)
    run_bare_loop(model.train(), model, rows, batches)


def run_bare_hf(rows: Rows, batches: list[IntArray], *, dropout: float) -> None:
    """Run the bare loop over Hugging Face's model."""
    model = build_hf_model(dropout=dropout)
    run_bare_loop(
        lambda ids, mask: model(input_ids=ids, attention_mask=mask).logits, model, rows, batches
    )


def run_ours(run: TrainingRun) -> None:
    """Run our whole loop from a fresh folder: real plan, real reader, history, last checkpoint."""
    open_run(run, load_shards(run.shards_dir, verify=False), force=True)
    run_training(run, group=SingleGroup(), device=torch.device("cpu"), num_threads=THREADS)


def build_run(
    rows: Rows,
    folder: Path,
    *,
    num_batches: int,
    dropout: float,
    precision: str = "fp32",
    is_bucketed: bool = True,
) -> tuple[TrainingRun, list[int]]:
    """Return the first steps of our loop over these rows, and the tokens of each.

    Without buckets the rows come in random order and a batch is padded to its longest row.
    """
    window = 128 if is_bucketed else 1
    job = JobConfig.model_validate(
        {
            "name": "speed",
            "output_dir": str(folder),
            "seed": typical_seed(rows.lengths, num_batches=num_batches, window=window),
            "data": {"files": ["none.csv"]},
            "buckets": {
                "window_batches": window,
                **({} if is_bucketed else {"max_padding": 1.0}),
            },
            "model": {
                "pretrained": PRETRAINED,
                "max_seq_len": rows.encoder.settings.max_seq_len,
                "pooling": "mean",
                "dropout": dropout,
            },
            "train": {
                "epochs": 1,
                "global_batch": BATCH_ROWS,
                "micro_batch": BATCH_ROWS,
                "base_lr": _LR * 8,
                "precision": precision,
                "longest_first": False,
                "validate_every_steps": 0,
                "tensorboard": False,
            },
        }
    )
    write_rows(rows, job, **({} if is_bucketed else {"num_buckets": 1}))
    run = plan_run(job, load_shards(job.shards_dir))
    plan = build_epoch_plan(rows.lengths, epoch=0, settings=plan_settings(job.seed, window=window))
    tokens = [int(rows.lengths[plan.batch(step)].sum()) for step in range(num_batches)]
    facts = {**run.facts, "total_steps": num_batches}
    return replace(run, epoch_steps=(num_batches,), facts=facts), tokens


def build_contestants(rows: Rows, folder: Path, *, num_batches: int, dropout: float):
    """Return name → what to run, and the tokens of its batches."""
    sample = partial(sample_batches, lengths=rows.lengths, num_batches=num_batches)
    random_, grouped, sorted_ = (
        sample(order(rows)) for order in (random_order, grouped_order, sorted_order)
    )
    ours = partial(build_run, rows, num_batches=num_batches, dropout=dropout)
    bucketed, bucketed_tokens = ours(folder / "bucketed")
    shuffled, shuffled_tokens = ours(folder / "shuffled", is_bucketed=False)
    half, half_tokens = ours(folder / "bf16", precision="bf16")
    return {
        "ours": (partial(run_ours, bucketed), bucketed_tokens),
        "ours, random order": (partial(run_ours, shuffled), shuffled_tokens),
        "ours, bf16": (partial(run_ours, half), half_tokens),
        "bare loop, sorted, our model": (
            partial(run_bare_ours, bucketed, rows, sorted_),
            tokens_of(rows, sorted_),
        ),
        "bare loop, sorted, HF model": (
            partial(run_bare_hf, rows, sorted_, dropout=dropout),
            tokens_of(rows, sorted_),
        ),
        "HF Trainer, random": (
            partial(run_trainer, rows, random_, dropout=dropout),
            tokens_of(rows, random_),
        ),
        "HF Trainer, grouped": (
            partial(run_trainer, rows, grouped, dropout=dropout),
            tokens_of(rows, grouped),
        ),
    }
