"""What every peer serves: a bundle's model and tokenizer, used as a careful person would."""

import json
import os
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

MAX_BATCH = 32
MAX_WAIT_S = 0.01


class Classifier:
    """One session; ``BUNDLE`` names the folder, ``THREADS`` its threads."""

    def __init__(self):
        folder = Path(os.environ["BUNDLE"])
        manifest = json.loads((folder / "manifest.json").read_text())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["THREADS"])
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            folder / os.environ["MODEL"], options, providers=["CPUExecutionProvider"]
        )
        self.labels = manifest["labels"]
        self.pad_token_id = manifest["pad_token_id"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(manifest["max_seq_len"])

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def score(self, rows):
        """Return an answer for each row of token ids, run as one padded batch."""
        shape = len(rows), max(map(len, rows))
        input_ids = np.full(shape, self.pad_token_id, dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        for index, row in enumerate(rows):
            input_ids[index, : len(row)] = row
            attention_mask[index, : len(row)] = 1
        feeds = {"input_ids": input_ids, "attention_mask": attention_mask}
        logits = self.session.run(["logits"], feeds)[0]
        exps = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = exps / exps.sum(axis=1, keepdims=True)
        best = shares.argmax(axis=1)
        return [
            {"label": self.labels[label], "score": float(share[label])}
            for label, share in zip(best, shares, strict=True)
        ]
