"""A tiny job with shards, so that training runs in a moment without Ray."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

from pipeline.config import JobConfig, Task
from pipeline.contract.batching import pad_rows
from pipeline.contract.folder import hash_files, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, SHARDS_SCHEMA_VERSION, load_shards, write_shard
from pipeline.contract.tokenization import IGNORED_LABEL, TextEncoder, TextSettings
from pipeline.model.architecture import Architecture
from pipeline.model.weights import build_new_model
from pipeline.train.group import SingleGroup
from pipeline.train.loop import run_training
from pipeline.train.micro_batches import MicroBatch
from pipeline.train.resume_rules import open_run
from pipeline.train.run import plan_run
from pipeline.train.training_run import TrainingRun

NUM_LABELS = 3
MAX_SEQ_LEN = 12
WORDS = [f"w{index}" for index in range(40)]


def build_job(
    output_dir: Path, task: Task = Task.SEQUENCE, *, takes_pairs: bool = False, **train: Any
) -> JobConfig:
    values = {
        "name": "tiny",
        "task": task,
        "output_dir": str(output_dir),
        "seed": 5,
        "data": {"files": ["none.csv"], "text_pair_column": "pair" if takes_pairs else None},
        "buckets": {"window_batches": 2},
        "model": {"max_seq_len": MAX_SEQ_LEN, "hidden_size": 16, "num_layers": 1, "num_heads": 2},
        "train": {
            "epochs": 2,
            "global_batch": 4,
            "micro_batch": 4,
            "base_lr": 0.3,
            "checkpoint_every_steps": 3,
            **train,
        },
    }
    return JobConfig.model_validate(values)


def with_train(job: JobConfig, **changes: Any) -> JobConfig:
    """Return the job under other settings of training."""
    return job.model_copy(update={"train": job.train.model_copy(update=changes)})


def write_shards(job: JobConfig, *, rows: int = 18) -> None:
    """Write shards whose labels are the row's first words, which a tiny model can learn."""
    encoder, takes_pairs = _build_encoder(), job.data.text_pair_column is not None
    generator = np.random.default_rng(0)
    splits = {}
    for split in ("train", "validation", "test"):
        file = f"{split}/bucket_00_shard_00000.arrow"
        made = [_row(generator, 1000 + index, job.task, encoder) for index in range(rows)]
        made = [_as_pair(row, encoder) for row in made] if takes_pairs else made
        write_shard(job.shards_dir / file, pa.Table.from_pylist(made, schema=SHARD_SCHEMA))
        tokens = sum(len(row["input_ids"]) for row in made)
        splits[split] = {"files": [file], "rows": rows, "tokens": tokens}
    encoder.save(job.shards_dir)
    manifest = {
        "schema_version": SHARDS_SCHEMA_VERSION,
        "fingerprint": "shards-of-the-test",
        "task": job.task.value,
        "takes_pairs": takes_pairs,
        "labels": [f"label{index}" for index in range(NUM_LABELS)],
        "text_settings": asdict(encoder.settings),
        "text_fingerprint": encoder.fingerprint,
        "bucket_edges": [MAX_SEQ_LEN],
        "splits": splits,
        "rows": {
            **dict.fromkeys(("read", "kept", "rejected", "not_sampled", "truncated"), 0),
            "rejected_by_reason": {},
        },
        "padding": dict.fromkeys(("random", "buckets", "buckets_window"), 0.0),
        "files": hash_files(job.shards_dir),
    }
    write_manifest(job.shards_dir, manifest)


def prepare_run(job: JobConfig, *, rows: int = 18) -> TrainingRun:
    """Write shards and an empty checkpoint folder, as the stage does before it starts Ray."""
    write_shards(job, rows=rows)
    shards = load_shards(job.shards_dir)
    run = plan_run(job, shards)
    open_run(run, shards, force=False)
    return run


def run_alone(run: TrainingRun) -> int:
    return run_training(run, group=SingleGroup(), device=torch.device("cpu"), num_threads=1)


def build_tiny_model(task: Task = Task.SEQUENCE, *, dropout: float = 0.0) -> nn.Module:
    """Return two layers of 12 channels for rows of at most 16 tokens."""
    architecture = Architecture(
        vocab_size=60,
        hidden_size=12,
        num_layers=2,
        num_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        dropout=dropout,
        pooling="mean",
        num_labels=NUM_LABELS,
        task=task.value,
        pad_token_id=0,
    )
    return build_new_model(architecture, seed=1, pretrained=None)[0]


def build_micro_batch(lengths: list[int], task: Task = Task.SEQUENCE) -> MicroBatch:
    """Return rows whose ids and labels depend on their position only."""
    rows = [np.arange(4, 4 + length) + index for index, length in enumerate(lengths)]
    input_ids, mask = pad_rows(rows, pad_value=0)
    labels = np.arange(len(lengths)) % NUM_LABELS
    if task is Task.TOKEN:
        labels = np.where((mask == 1) & (input_ids % 2 == 0), input_ids % NUM_LABELS, IGNORED_LABEL)
    if task is Task.MULTI_LABEL:
        # 0 to 2 labels a row.
        flags = [[row % 3 > label for label in range(NUM_LABELS)] for row in range(len(lengths))]
        labels = np.array(flags, dtype=np.float32)
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids),
        attention_mask=torch.from_numpy(mask),
        labels=torch.from_numpy(labels),
        row_ids=tuple(range(100, 100 + len(lengths))),
    )


def _build_encoder() -> TextEncoder:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "[MASK]"]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return TextEncoder(tokenizer, TextSettings(max_seq_len=MAX_SEQ_LEN))


def _row(
    generator: np.random.Generator, row_id: int, task: Task, encoder: TextEncoder
) -> dict[str, Any]:
    words = list(generator.integers(0, len(WORDS), size=generator.integers(1, MAX_SEQ_LEN - 2)))
    text = " ".join(WORDS[word] for word in words)
    word_labels = [int(word) % NUM_LABELS for word in words]
    is_token_task = task is Task.TOKEN
    labels = [IGNORED_LABEL, *word_labels, IGNORED_LABEL] if is_token_task else word_labels[:1]
    if task is Task.MULTI_LABEL:
        # A first word of the first ten gives no label at all.
        labels = sorted(set(word_labels[:2])) if words[0] >= 10 else []
    input_ids = encoder.encode_texts([text])[0].input_ids
    return {
        "row_id": row_id,
        "window": 0,
        "text": text,
        "text_pair": "",
        "input_ids": input_ids,
        "labels": labels,
    }


def _as_pair(row: dict[str, Any], encoder: TextEncoder) -> dict[str, Any]:
    words = row["text"].split(" ")
    pair = (" ".join(words[:2]), " ".join(words[::-1][:3]))
    input_ids = encoder.encode_pairs([pair])[0].input_ids
    return {**row, "text": pair[0], "text_pair": pair[1], "input_ids": input_ids}
