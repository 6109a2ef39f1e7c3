"""The tokenizer of a job: that of the pretrained folder, or a WordPiece one trained here."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from pipeline.config import JobConfig, resolve_location
from pipeline.contract.shards import SPLITS
from pipeline.contract.tokenization import (
    TextEncoder,
    TextSettings,
    build_text_encoder,
    load_text_encoder,
)
from pipeline.data.spool import Spool

_SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_MAX_ALPHABET = 1000
_MIN_WORD_COUNT = 2
_TRAIN = SPLITS.index("train")

ReadTexts = Callable[[], Iterator[str]]
"""Returns the cleaned texts from their beginning; they are read twice."""


def text_settings_of(job: JobConfig) -> TextSettings:
    """Return what decides the ids of this job's texts beside the tokenizer."""
    return TextSettings(max_seq_len=job.model.max_seq_len, strip_html=job.data.strip_html)


def load_pretrained_encoder(job: JobConfig) -> TextEncoder | None:
    """Return the encoder of the job's pretrained folder, None for a random start.

    Raises:
        MissingFileError: the folder holds no tokenizer.
        FolderError: its tokenizer cannot be read.
        ConfigError: the package of a ``package://`` location is not installed.
    """
    if job.model.pretrained is None:
        return None
    folder = Path(resolve_location(job.model.pretrained))
    return load_text_encoder(folder, text_settings_of(job))


def train_encoder(job: JobConfig, spool: Spool, split: NDArray[np.int8]) -> TextEncoder:
    """Return the encoder trained on the job's train texts, which stay on disk.

    Args:
        job: vocabulary size and text settings.
        spool: of :data:`pipeline.data.blocks.SPOOL_SCHEMA`.
        split: of every row, position in ``SPLITS`` or -1.

    Raises:
        FolderError: ``model.max_seq_len`` leaves no room beside the special tokens.
    """

    def read_texts() -> Iterator[str]:
        for rows, block in spool.blocks():
            is_train = pa.array(split[rows] == _TRAIN)
            for name in ("text", "text_pair"):
                texts = block.column(name).filter(is_train)
                yield from texts.filter(pc.not_equal(texts, "")).to_pylist()

    return train_text_encoder(
        read_texts, vocab_size=job.model.vocab_size, settings=text_settings_of(job)
    )


def train_text_encoder(
    read_texts: ReadTexts, *, vocab_size: int, settings: TextSettings
) -> TextEncoder:
    """Return a lowercasing BERT WordPiece encoder trained on cleaned texts.

    Equal texts give the equal tokenizer, byte for byte. Of the characters the most
    frequent are kept, at most 1,000 and a quarter of ``vocab_size``.

    Raises:
        FolderError: ``settings.max_seq_len`` leaves no room beside the special tokens.
    """
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    alphabet = _choose_alphabet(tokenizer, read_texts(), limit=min(_MAX_ALPHABET, vocab_size // 4))
    inner = [f"##{char}" for char in alphabet if _continues_word(tokenizer, char)]
    # Left alone, the trainer numbers "##x" pieces in the order of a randomly seeded hash map,
    # which also decides ties between merges. Listed as special, they are numbered first.
    tokenizer.train_from_iterator(
        read_texts(),
        vocab_size=vocab_size,
        min_frequency=_MIN_WORD_COUNT,
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
        special_tokens=[*_SPECIAL_TOKENS, *alphabet, *inner],
        show_progress=False,
    )
    # A fresh tokenizer from the vocabulary knows only the five special tokens as special.
    plain = BertWordPieceTokenizer(tokenizer.get_vocab(), lowercase=True)
    return build_text_encoder(plain.to_str(), settings)


def _choose_alphabet(
    tokenizer: BertWordPieceTokenizer, texts: Iterator[str], *, limit: int
) -> list[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokenizer.normalizer.normalize_str(text))
    chars = [char for char in counts if not char.isspace()]
    return sorted(sorted(chars, key=lambda char: (-counts[char], char))[:limit])


def _continues_word(tokenizer: BertWordPieceTokenizer, char: str) -> bool:
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{char}")) == 1
