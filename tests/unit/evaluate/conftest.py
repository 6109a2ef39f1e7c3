"""A finished job in small: shards of nonsense words and a random model that was never trained."""

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest
import torch
from log_samples import step_row, write_lines
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import BertProcessing

from pipeline.config import JobConfig
from pipeline.contract.folder import hash_files, sha256_file, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, write_shard
from pipeline.contract.tokenization import TextEncoder, TextSettings, align_labels
from pipeline.evaluate.run import evaluate
from pipeline.model.architecture import Architecture
from pipeline.model.checkpoint_manifest import CHECKPOINT_SCHEMA_VERSION
from pipeline.model.classifier import TextClassifier

PAIR = "w1 & <i>second</i>"
HOSTILE = "<script>alert('x')</script>"
WORDS = [f"w{index}" for index in range(20)]
LABELS = {
    "sequence_classification": ["<b>no</b> & $x_", "yes"],
    "token_classification": ["B-LOC", "B-PER", "I-PER", "O"],
    "multi_label_classification": ["<b>no</b> & $x_", "yes", "maybe"],
}
ROWS = {"train": 40, "validation": 12, "test": 16}
CHECKPOINT = "step_2_loss_0.5000.pt"


def build_encoder():
    ids = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return TextEncoder(tokenizer, TextSettings(max_seq_len=12, strip_html=False))


def write_shards(folder, task, encoder, takes_pairs=False):
    rng = np.random.default_rng(0)
    splits = {}
    for split, count in ROWS.items():
        rows = []
        for index in range(count):
            words = [*rng.choice(WORDS, rng.integers(1, 14)).tolist(), HOSTILE]
            if task == "token_classification":
                encoded = encoder.encode_words([words])[0]
                word_labels = rng.integers(0, 4, len(words)).tolist()
                labels = align_labels(word_labels, encoded.word_ids).tolist()
            else:
                text, labels = " ".join(words), [index % 2]
                encoded = (
                    encoder.encode_pairs([(text, PAIR)])[0]
                    if takes_pairs
                    else encoder.encode_texts([text])[0]
                )
                if task == "multi_label_classification":
                    labels = np.flatnonzero(rng.integers(0, 2, 3)).tolist()
            rows.append(
                {
                    "row_id": 100 + index,
                    "window": 0,
                    "text": " ".join(words),
                    "text_pair": PAIR if takes_pairs else "",
                    "input_ids": encoded.input_ids.tolist(),
                    "labels": labels,
                }
            )
        file = f"{split}/bucket_00_shard_00000.arrow"
        write_shard(folder / file, pa.Table.from_pylist(rows, schema=SHARD_SCHEMA))
        tokens = sum(len(row["input_ids"]) for row in rows)
        splits[split] = {"files": [file], "rows": count, "tokens": tokens, "label_counts": {}}
    encoder.save(folder)
    counts = {"read": 70, "kept": 68, "rejected": 2, "not_sampled": 0, "truncated": 9}
    manifest = {
        "schema_version": 2,
        "fingerprint": "shards-1",
        "task": task,
        "takes_pairs": takes_pairs,
        "labels": LABELS[task],
        "text_settings": asdict(encoder.settings),
        "text_fingerprint": encoder.fingerprint,
        "bucket_edges": [5, 9, 12],
        "splits": splits,
        "rows": {**counts, "rejected_by_reason": {HOSTILE: 2}},
        "padding": {"random": 0.3, "buckets": 0.1, "buckets_window": 0.05},
        "versions": {"ray": "1"},
        "files": hash_files(folder),
    }
    write_manifest(folder, manifest)


def write_checkpoint(folder, task, encoder, takes_pairs=False):
    folder.mkdir(parents=True)
    architecture = Architecture(
        vocab_size=24,
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        dropout=0.1,
        pooling="mean",
        num_labels=len(LABELS[task]),
        task=task,
        pad_token_id=0,
        sep_token_id=encoder.sep_token_id if takes_pairs else None,
    )
    torch.manual_seed(0)
    torch.save({"model": TextClassifier(architecture).state_dict()}, folder / CHECKPOINT)
    encoder.save(folder)
    write_lines(folder / "history.jsonl", [step_row(1), step_row(2)])
    entry = {"file": CHECKPOINT, "step": 2, "loss": 0.5, "kind": "final", "is_best": False}
    manifest = {
        "schema_version": CHECKPOINT_SCHEMA_VERSION,
        "fingerprint": "checkpoint-1",
        "is_finished": True,
        "task": task,
        "labels": LABELS[task],
        "text_settings": asdict(encoder.settings),
        "text_fingerprint": encoder.fingerprint,
        "pad_token_id": 0,
        "architecture": asdict(architecture),
        "shards_fingerprint": "shards-1",
        "total_steps": 2,
        "final_weights": "last",
        "best_metric": "macro_f1",
        "latest": CHECKPOINT,
        "checkpoints": [{**entry, "sha256": sha256_file(folder / CHECKPOINT)}],
        "versions": {"torch": "1"},
    }
    write_manifest(folder, manifest)


def prepare_job(folder, task, *, baseline=False, takes_pairs=False):
    job = JobConfig.model_validate(
        {
            "name": "tiny",
            "task": task,
            "output_dir": str(folder),
            "data": {"files": ["none.csv"]},
            "evaluate": {"baseline": baseline, "batch_rows": 5},
        }
    )
    encoder = build_encoder()
    write_shards(job.shards_dir, task, encoder, takes_pairs)
    write_checkpoint(job.checkpoint_dir, task, encoder, takes_pairs)
    return job


@pytest.fixture
def make_job(tmp_path):
    def make(task="sequence_classification", *, baseline=False, takes_pairs=False):
        return prepare_job(tmp_path / "out", task, baseline=baseline, takes_pairs=takes_pairs)

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Jobs with a report, to be read only: drawing one takes a second."""
    results = {}

    def get(task="sequence_classification"):
        if task not in results:
            job = prepare_job(tmp_path_factory.mktemp("report") / "out", task)
            results[task] = (job, evaluate(job))
        return results[task]

    return get
