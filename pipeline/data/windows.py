"""Cuts an over-long text into windows that share tokens, so that none of it is lost."""

from collections.abc import Sequence

import numpy as np
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

    def encode_texts(self, texts: Sequence[str]) -> list[list[EncodedText]]:
        """Return the windows of each cleaned text, in order; they cover it all.

        Each has the special tokens around it. The first is what
        :meth:`TextEncoder.encode_texts` gives; a text that fits is that one window.
        """
        return [self._cut(encoding) for encoding in self._tokenizer.encode_batch(texts)]

    def encode_words(self, rows: Sequence[list[str]]) -> list[list[EncodedText]]:
        """Return the windows of texts that come as words.

        In the windows after the first only the token that begins a word has its word id,
        the others -1: a word cut in two has its label where it begins.
        """
        encodings = self._tokenizer.encode_batch(rows, is_pretokenized=True)
        return [self._cut(encoding) for encoding in encodings]

    def _cut(self, encoding: Encoding) -> list[EncodedText]:
        whole = read_encoding(encoding)
        if len(whole.input_ids) <= self._max_seq_len:
            return [whole]
        begins = whole.word_ids.copy()
        begins[1:][whole.word_ids[1:] == whole.word_ids[:-1]] = -1
        inside = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
        begin, end = int(inside[0]), int(inside[-1]) + 1
        windows = []
        for start in range(begin, max(end - self._stride, begin + 1), self._room - self._stride):
            kept = np.r_[0:begin, start : min(start + self._room, end), end : len(begins)]
            windows.append(
                EncodedText(
                    input_ids=whole.input_ids[kept],
                    word_ids=(whole.word_ids if start == begin else begins)[kept],
                    is_truncated=False,
                )
            )
        return windows
