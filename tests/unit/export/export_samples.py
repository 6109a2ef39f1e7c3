"""Tiny models and folders that export reads, made from nothing in a moment."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from pipeline.config import DataSettings, JobConfig, Task
from pipeline.contract.folder import hash_files, sha256_file, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, SHARDS_SCHEMA_VERSION, SPLITS, write_shard
from pipeline.contract.tokenization import TextEncoder, TextSettings
from pipeline.model.architecture import Architecture
from pipeline.model.checkpoint_manifest import CHECKPOINT_SCHEMA_VERSION, FINAL
from pipeline.model.classifier import TextClassifier

MAX_SEQ_LEN = 24
SEP = 3
LABELS = ("bad", "good", "odd")
_WORDS = [f"word{index}" for index in range(40)]
_ROWS = {"train": 24, "validation": 40, "test": 20}


def build_architecture(task: Task = Task.SEQUENCE, **changes: Any) -> Architecture:
    values: dict[str, Any] = {
        "vocab_size": 44,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": MAX_SEQ_LEN,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "dropout": 0.1,
        "pooling": "cls",
        "num_labels": len(LABELS),
        "task": task.value,
        "pad_token_id": 0,
    }
    return Architecture(**{**values, **changes})


def build_classifier(architecture: Architecture) -> TextClassifier:
    torch.manual_seed(0)
    return TextClassifier(architecture).eval()


def build_encoder() -> TextEncoder:
    vocab = {
        word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *_WORDS])
    }
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return TextEncoder(tokenizer, TextSettings(max_seq_len=MAX_SEQ_LEN))


def write_job_folders(
    output_dir: Path, task: Task = Task.SEQUENCE, *, takes_pairs: bool = False
) -> JobConfig:
    """Write the shards and the checkpoint of a job, as if it had been trained."""
    job = JobConfig(
        name="tiny", task=task, output_dir=str(output_dir), data=DataSettings(files=("none.csv",))
    )
    encoder = build_encoder()
    _write_shards(job.shards_dir, task=task, encoder=encoder, takes_pairs=takes_pairs)
    _write_checkpoint(job.checkpoint_dir, task=task, encoder=encoder, takes_pairs=takes_pairs)
    return job


def _write_shards(folder: Path, *, task: Task, encoder: TextEncoder, takes_pairs: bool) -> None:
    rng = np.random.default_rng(0)
    splits = {}
    for split in SPLITS:
        file = f"{split}/bucket_00_shard_00000.arrow"
        rows = [_row(rng, index, task, encoder) for index in range(_ROWS[split])]
        rows = [_as_pair(row, encoder) for row in rows] if takes_pairs else rows
        write_shard(folder / file, pa.Table.from_pylist(rows, schema=SHARD_SCHEMA))
        splits[split] = {"files": [file], "rows": len(rows)}
    encoder.save(folder)
    manifest = {
        "schema_version": SHARDS_SCHEMA_VERSION,
        "fingerprint": "shards-1",
        "task": task.value,
        "takes_pairs": takes_pairs,
        "labels": list(LABELS),
        "text_settings": asdict(encoder.settings),
        "bucket_edges": [8, MAX_SEQ_LEN],
        "splits": splits,
        "files": hash_files(folder),
    }
    write_manifest(folder, manifest)


def _row(rng: np.random.Generator, index: int, task: Task, encoder: TextEncoder) -> dict[str, Any]:
    text = " ".join(rng.choice(_WORDS, size=rng.integers(1, MAX_SEQ_LEN - 2)))
    encoded = encoder.encode_texts([text])[0]
    length = len(encoded.input_ids) if task is Task.TOKEN else 1
    labels = rng.integers(0, len(LABELS), length, dtype=np.int32)
    if task is Task.MULTI_LABEL:
        labels = np.flatnonzero(rng.integers(0, 2, len(LABELS))).astype(np.int32)
    return {
        "row_id": index,
        "window": 0,
        "text": text,
        "text_pair": "",
        "input_ids": encoded.input_ids,
        "labels": labels,
    }


def _as_pair(row: dict[str, Any], encoder: TextEncoder) -> dict[str, Any]:
    pair = (row["text"], "word7 word1")
    input_ids = encoder.encode_pairs([pair])[0].input_ids
    return {**row, "text_pair": pair[1], "input_ids": input_ids}


def _write_checkpoint(folder: Path, *, task: Task, encoder: TextEncoder, takes_pairs: bool) -> None:
    folder.mkdir(parents=True)
    architecture = build_architecture(task, sep_token_id=SEP if takes_pairs else None)
    file = "step_10_loss_0.5000.pt"
    torch.save({"model": build_classifier(architecture).state_dict()}, folder / file)
    encoder.save(folder)
    entry = {"file": file, "step": 10, "loss": 0.5, "kind": FINAL, "is_best": False}
    manifest = {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        "fingerprint": "checkpoint-1",
        "is_finished": True,
        "task": task.value,
        "labels": list(LABELS),
        "text_settings": asdict(encoder.settings),
        "text_fingerprint": encoder.fingerprint,
        "pad_token_id": encoder.pad_token_id,
        "architecture": asdict(architecture),
        "shards_fingerprint": "shards-1",
        "total_steps": 10,
        "latest": file,
        "checkpoints": [{**entry, "sha256": sha256_file(folder / file)}],
    }
    write_manifest(folder, manifest)
