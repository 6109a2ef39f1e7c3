"""Cuts an over-long text into windows that share tokens, so that none of it is lost."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from pipeline.contract.errors import ConfigError
from pipeline.contract.tokenization import EncodedText, TextEncoder, read_encoding


class WindowEncoder:
    """Encodes texts of any length as windows of at most ``max_seq_len`` tokens."""

    def __init__(self, encoder: TextEncoder, *, stride: int) -> None:
        """Copy the encoder's tokenizer and let the copy cut nothing.

        Args:
            encoder: gives tokenizer and ``max_seq_len``.
            stride: tokens that neighbouring windows share.

        Raises:
            ConfigError: a window would hold no token that the one before it has not.
        """
        self._max_seq_len = encoder.settings.max_seq_len
        self._room = self._max_seq_len - encoder.num_special_tokens
        if stride >= self._room:
            raise ConfigError(
                f"windows of {self._room} tokens cannot share as many",
                place="data.window_stride",
                value=stride,
                remedy="Lower data.window_stride or raise model.max_seq_len.",
            )
        self._stride = stride
        self._tokenizer = Tokenizer.from_str(encoder.to_json())
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True

    def encode_texts(self, texts: Sequence[str]) -> list[list[NDArray[np.int32]]]:
        """Return the ids of each cleaned text's windows, in order; they cover it all.

        Each has the special tokens around it. The first is what
        :meth:`TextEncoder.encode_texts` gives; a text that fits is that one window.
        """
        windows = []
        for encoding in self._tokenizer.encode_batch_fast(texts):
            ids = np.array(encoding.ids, dtype=np.int32)
            windows.append([ids[tokens] for tokens in self._cut(encoding)])
        return windows

    def encode_words(self, rows: Sequence[list[str]]) -> list[list[EncodedText]]:
        """Return the windows of texts that come as words.

        In the windows after the first only the token that begins a word has its word id,
        the others -1: a word cut in two has its label where it begins.
        """
        encodings = self._tokenizer.encode_batch(rows, is_pretokenized=True)
        return [self._cut_words(encoding) for encoding in encodings]

    def _cut_words(self, encoding: Encoding) -> list[EncodedText]:
        whole = read_encoding(encoding)
        begins = whole.word_ids.copy()
        begins[1:][whole.word_ids[1:] == whole.word_ids[:-1]] = -1
        return [
            EncodedText(
                input_ids=whole.input_ids[tokens],
                word_ids=(begins if window else whole.word_ids)[tokens],
                is_truncated=False,
            )
            for window, tokens in enumerate(self._cut(encoding))
        ]

    def _cut(self, encoding: Encoding) -> list[NDArray[np.int64]]:
        """Return the positions of each window's tokens in the whole text."""
        num_tokens = len(encoding)
        if num_tokens <= self._max_seq_len:
            return [np.arange(num_tokens)]
        inside = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
        begin, end = int(inside[0]), int(inside[-1]) + 1
        step = self._room - self._stride
        return [
            np.r_[0:begin, start : min(start + self._room, end), end:num_tokens]
            for start in range(begin, max(end - self._stride, begin + 1), step)
        ]
