"""Tiny real bundles: a graph of a few ONNX nodes with a formula that tests can state.

Sequence task: logits are the mean of the tokens' vectors, special tokens included.
Multi-label task: the same mean less a half, so that a text without words of a label lacks it.
Token task: logits are each token's vector. The vector of a word is 4 at the label it
stands for and 0 elsewhere; every other token's is 0. ``boom`` is in the tokenizer but not
in the model, so that running it fails.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from profiles import profile_values
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from pipeline.contract.bundle import (
    BUNDLE_SCHEMA_VERSION,
    FP32_NAME,
    INT8_NAME,
    BatchShift,
    Bundle,
    BundleManifest,
    Limits,
    write_bundle,
)
from pipeline.contract.profile import TrainingProfile
from pipeline.contract.tokenization import TextEncoder, TextSettings

SEQUENCE, TOKEN = "sequence_classification", "token_classification"
MULTI_LABEL = "multi_label_classification"
LABELS = {
    SEQUENCE: ("negative", "positive"),
    TOKEN: ("O", "PER", "LOC"),
    MULTI_LABEL: ("negative", "positive", "PER"),
}
WEIGHT = 4.0
FAILING_WORD = "boom"
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_PLAIN = ["the", "film", "is", "lives", "in", "##s"]
_WORDS = {
    "bad": "negative",
    "dull": "negative",
    "good": "positive",
    "fun": "positive",
    "anna": "PER",
    "oslo": "LOC",
}
VOCABULARY = [*_SPECIAL, *_PLAIN, *_WORDS, FAILING_WORD]


@dataclass(frozen=True)
class Variant:
    """How the graph of another version differs; only the first keeps every answer right."""

    weight: float = WEIGHT
    """Of a word's label: other bytes and scores, the same labels."""
    is_swapped: bool = False
    """Whether the labels' columns are turned round, as after a shuffle."""
    num_missing: int = 1
    """Last words of the vocabulary that the model lacks: 2 has it fail on ``oslo`` too."""
    num_slow: int = 0
    """Matrix products of 1,024 that each run does for nothing."""


PLAIN = Variant()
_SLOW_WIDTH = 1024


def _slow_nodes(num, output):
    """Return nodes that take time, and add nothing to ``plain``."""
    names = [f"slow_{index}" for index in range(num + 1)]
    nodes = [helper.make_node("MatMul", ["count", "slow_row"], [names[0]])]
    nodes += [
        helper.make_node("MatMul", [before, "slow_square"], [after])
        for before, after in pairwise(names)
    ]
    nodes += [
        helper.make_node("ReduceSum", [names[-1], "middle"], ["slow_sum"], keepdims=1),
        helper.make_node("Mul", ["slow_sum", "zero"], ["nothing"]),
        helper.make_node("Add", ["plain", "nothing"], [output]),
    ]
    width = _SLOW_WIDTH
    constants = {
        "slow_row": np.full((1, width), 1 / width, dtype=np.float32),
        "slow_square": np.full((width, width), 1 / width, dtype=np.float32),
        "zero": np.array(0.0, dtype=np.float32),
    }
    return nodes, [numpy_helper.from_array(value, name) for name, value in constants.items()]


def build_tokenizer() -> Tokenizer:
    """Return an uncased WordPiece tokenizer over ``VOCABULARY``."""
    ids = {word: index for index, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    tokenizer.add_special_tokens(_SPECIAL)
    return tokenizer


def build_model(task: str, variant: Variant = PLAIN) -> onnx.ModelProto:
    """Return the graph: int64 input_ids and attention_mask [batch, seq] to float32 logits."""
    labels = LABELS[task]
    known = VOCABULARY[: -variant.num_missing]
    table = np.zeros((len(known), len(labels)), dtype=np.float32)
    for word, label in _WORDS.items():
        if label in labels and word in known:
            table[known.index(word), labels.index(label)] = variant.weight
    if variant.is_swapped:
        table = np.ascontiguousarray(table[:, ::-1])
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["vectors"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["mask_3d"]),
        helper.make_node("Mul", ["vectors", "mask_3d"], ["logits" if task == TOKEN else "masked"]),
    ]
    if task != TOKEN:
        nodes += [
            helper.make_node("ReduceSum", ["masked", "middle"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["mask", "middle"], ["count"], keepdims=1),
            helper.make_node("Div", ["sum", "count"], ["mean"]),
            helper.make_node(
                "Sub", ["mean", "offset"], ["plain" if variant.num_slow else "logits"]
            ),
        ]
    slow_nodes, slow_constants = _slow_nodes(variant.num_slow, "logits")
    nodes += slow_nodes if variant.num_slow else []
    shape, axes = ["batch", "seq"], [numpy_helper.from_array(np.array([2]), "last")]
    if task != TOKEN:
        offset = np.array(0.5 if task == MULTI_LABEL else 0.0, dtype=np.float32)
        axes += [
            numpy_helper.from_array(np.array([1]), "middle"),
            numpy_helper.from_array(offset, "offset"),
        ]
    out_shape = [*shape, len(labels)] if task == TOKEN else ["batch", len(labels)]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, shape),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, out_shape)],
        [
            numpy_helper.from_array(table, "table"),
            *axes,
            *(slow_constants if variant.num_slow else []),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def write_tiny_bundle(
    target: Path,
    *,
    task: str = SEQUENCE,
    max_seq_len: int = 16,
    max_text_chars: int = 200,
    with_int8: bool = False,
    takes_pairs: bool = False,
    variant: Variant = PLAIN,
) -> Bundle:
    """Write a bundle; ``with_int8`` adds the same graph under the INT8 name."""
    settings = TextSettings(max_seq_len=max_seq_len)
    encoder = TextEncoder(build_tokenizer(), settings)

    def fill(folder: Path) -> None:
        encoder.save(folder)
        model = build_model(task, variant)
        onnx.save(model, folder / FP32_NAME)
        if with_int8:
            onnx.save(model, folder / INT8_NAME)

    percentiles = tuple(min(max_seq_len, 3 + step // 8) for step in range(101))

    def describe(files: dict[str, str]) -> BundleManifest:
        return BundleManifest(
            schema_version=BUNDLE_SCHEMA_VERSION,
            name="tiny",
            task=task,
            labels=LABELS[task],
            target="cpu",
            default_model=FP32_NAME,
            batch_shift={
                name: BatchShift(logit=0.0, probability=0.0)
                for name in files
                if name.endswith(".onnx")
            },
            seq_len_percentiles=percentiles,
            profile=TrainingProfile(**profile_values(percentiles, LABELS[task])),
            opset=14,
            pad_token_id=encoder.pad_token_id,
            max_seq_len=max_seq_len,
            strip_html=settings.strip_html,
            takes_pairs=takes_pairs,
            text_fingerprint=encoder.fingerprint,
            limits=Limits(
                max_seq_len=max_seq_len, max_text_chars=max_text_chars, max_batch_rows=32
            ),
            quality={"accuracy": {FP32_NAME: 1.0}},
            provenance={"commit": None},
            files=files,
        )

    return write_bundle(target, fill=fill, describe=describe)
