"""Text to token ids: the one definition of cleaning, truncation and special tokens."""

import html
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer

from pipeline.contract.errors import FolderError, MissingFileError
from pipeline.contract.folder import fingerprint, read_json

TOKENIZER_NAME = "tokenizer.json"
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
IGNORED_LABEL = -100
HTML_TAG = re.compile(r"<[a-zA-Z/!][^<>]{0,200}>")


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """What decides the ids of a text beside the tokenizer file; stored in every manifest."""

    max_seq_len: int
    """Tokens kept, special tokens included; the rest is cut off at the end."""
    strip_html: bool = False
    """Replace HTML tags by a space and entities by their characters before tokenising."""


@dataclass(frozen=True, kw_only=True)
class EncodedText:
    """One tokenised text."""

    input_ids: NDArray[np.int32]
    """``int32 [seq]``, special tokens included."""
    word_ids: NDArray[np.int32]
    """``int32 [seq]``: index of the word each token belongs to, -1 for special tokens."""
    is_truncated: bool


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """Many tokenised texts, their ids in one array."""

    input_ids: NDArray[np.int32]
    """``int32 [tokens]``, one text after the other, special tokens included."""
    lengths: NDArray[np.int64]
    """Tokens of each text, ``int64 [texts]``."""
    is_truncated: NDArray[np.bool_]
    """``bool [texts]``."""


def clean_text(text: str, settings: TextSettings) -> str:
    """Return the text with single spaces and without NUL, lone surrogates or (if set) HTML.

    The result is empty when nothing readable is left.
    """
    if settings.strip_html:
        text = html.unescape(HTML_TAG.sub(" ", text))
    text = text.replace("\x00", " ").encode("utf-8", "ignore").decode("utf-8")
    text = " ".join(text.split())
    return text if any(map(_is_readable, text)) else ""


def _is_readable(character: str) -> bool:
    # Control and format characters alone (a zero-width space) show nothing.
    return character.isprintable() and character not in " \ufffd"


class TextEncoder:
    """Turns cleaned texts into ids; built once per process from a tokenizer file."""

    def __init__(self, tokenizer: Tokenizer, settings: TextSettings) -> None:
        """Take over a tokenizer; its own truncation and padding are switched off.

        Raises:
            FolderError: ``max_seq_len`` leaves no room for a token beside the special ones,
                or the tokenizer has no padding token.
        """
        self.settings = settings
        self.num_special_tokens = int(tokenizer.num_special_tokens_to_add(False))
        if settings.max_seq_len <= self.num_special_tokens:
            raise FolderError(
                f"max_seq_len must be over the {self.num_special_tokens} special tokens",
                value=settings.max_seq_len,
            )
        # Published tokenizer files often truncate and pad by themselves (MiniLM's: to 128).
        tokenizer.enable_truncation(settings.max_seq_len)
        tokenizer.no_padding()
        # Who types "[SEP]" means these letters; as a special token it would part the text.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        pad_token_id = tokenizer.token_to_id("[PAD]")
        if pad_token_id is None:
            raise FolderError("the tokenizer has no [PAD] token")
        self.pad_token_id = int(pad_token_id)
        self.vocab_size = int(tokenizer.get_vocab_size())

    @property
    def mask_token_id(self) -> int | None:
        """Id of ``[MASK]``, None if the tokenizer has none."""
        found = self._tokenizer.token_to_id("[MASK]")
        return None if found is None else int(found)

    @property
    def unknown_token_id(self) -> int | None:
        """Id of ``[UNK]``, for what the vocabulary lacks; None if the tokenizer has none."""
        found = self._tokenizer.token_to_id("[UNK]")
        return None if found is None else int(found)

    @property
    def special_token_ids(self) -> tuple[int, ...]:
        """Ids that stand for no text, ascending: BERT's five and what the file calls special."""
        named = map(self._tokenizer.token_to_id, _SPECIAL_TOKENS)
        added = self._tokenizer.get_added_tokens_decoder()
        declared = {int(index) for index, token in added.items() if token.special}
        return tuple(sorted(declared.union(index for index in named if index is not None)))

    @property
    def fingerprint(self) -> str:
        """Hash of the tokenizer and the settings: equal means equal ids for every text."""
        return fingerprint(
            {
                "tokenizer": self._tokenizer.to_str(),
                "special_tokens_in_text": "letters",
                **asdict(self.settings),
            }
        )

    @property
    def sep_token_id(self) -> int:
        """Id that ends each text of a pair.

        Raises:
            FolderError: the tokenizer has no [SEP] token.
        """
        sep_token_id = self._tokenizer.token_to_id("[SEP]")
        if sep_token_id is None:
            raise FolderError("the tokenizer has no [SEP] token")
        return int(sep_token_id)

    def clean(self, text: str) -> str:
        """Return :func:`clean_text` under these settings."""
        return clean_text(text, self.settings)

    def encode_texts(self, texts: list[str]) -> list[EncodedText]:
        """Return the ids of cleaned texts, in order, each cut to ``max_seq_len``."""
        return [read_encoding(encoding) for encoding in self._tokenizer.encode_batch(texts)]

    def encode_pairs(self, pairs: list[tuple[str, str]]) -> list[EncodedText]:
        """Return the ids ``[CLS] a [SEP] b [SEP]`` of cleaned pairs, in order.

        A pair over ``max_seq_len`` loses tokens at the end of its longer text first.
        ``word_ids`` begin at 0 in either text.

        Raises:
            FolderError: as :meth:`demand_pairs`.
        """
        self.demand_pairs()
        return [read_encoding(encoding) for encoding in self._tokenizer.encode_batch(pairs)]

    def encode_words(self, rows: list[list[str]]) -> list[EncodedText]:
        """Return the ids of texts that come as words; ``word_ids`` index the given words."""
        encodings = self._tokenizer.encode_batch(rows, is_pretokenized=True)
        return [read_encoding(encoding) for encoding in encodings]

    def encode_batch(self, rows: Sequence[str] | Sequence[tuple[str, str]]) -> EncodedBatch:
        """Return the ids of :meth:`encode_texts` or :meth:`encode_pairs`, without ``word_ids``.

        This is the fast way for many rows: the tokenizer keeps no account of where in the
        text a token stood.
        """
        encodings = self._tokenizer.encode_batch_fast(rows)
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        # `overflowing` copies what was cut off, so only full rows are asked for it.
        is_full = lengths >= self.settings.max_seq_len
        is_truncated = np.zeros(len(encodings), dtype=np.bool_)
        for row in np.flatnonzero(is_full):
            is_truncated[row] = bool(encodings[row].overflowing)
        return EncodedBatch(
            input_ids=np.fromiter(ids, np.int32, int(lengths.sum())),
            lengths=lengths,
            is_truncated=is_truncated,
        )

    def demand_pairs(self) -> None:
        """Check that two texts can be told apart in one row.

        Raises:
            FolderError: the tokenizer puts nothing between them, or ``max_seq_len`` leaves
                no room for a token of each beside the special tokens.
        """
        num_special = int(self._tokenizer.num_special_tokens_to_add(True))
        if num_special <= self.num_special_tokens:
            raise FolderError(
                "the tokenizer puts no special token between the texts of a pair",
                remedy="Use a tokenizer with a template for pairs, such as BERT's.",
            )
        if self.settings.max_seq_len < num_special + 2:
            raise FolderError(
                f"max_seq_len must be at least {num_special + 2} for pairs of texts",
                value=self.settings.max_seq_len,
            )

    def to_json(self) -> str:
        """Return the tokenizer as JSON text."""
        return str(self._tokenizer.to_str())

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` into a folder."""
        (folder / TOKENIZER_NAME).write_text(self.to_json(), encoding="utf-8")


def read_encoding(encoding: Encoding) -> EncodedText:
    """Return what a tokenizer gave for one text as arrays."""
    word_ids = [-1 if word is None else word for word in encoding.word_ids]
    return EncodedText(
        input_ids=np.array(encoding.ids, dtype=np.int32),
        word_ids=np.array(word_ids, dtype=np.int32),
        is_truncated=bool(encoding.overflowing),
    )


def build_text_encoder(tokenizer_json: str, settings: TextSettings) -> TextEncoder:
    """Return the encoder of a tokenizer given as JSON text (as :meth:`TextEncoder.to_json`)."""
    return TextEncoder(Tokenizer.from_str(tokenizer_json), settings)


def load_text_encoder(folder: Path, settings: TextSettings) -> TextEncoder:
    """Return the encoder of a folder that holds ``tokenizer.json`` or a BERT ``vocab.txt``.

    Raises:
        MissingFileError: neither file is there.
        FolderError: the file cannot be read as a tokenizer.
    """
    path, vocab = folder / TOKENIZER_NAME, folder / "vocab.txt"
    try:
        if path.is_file():
            return TextEncoder(Tokenizer.from_file(str(path)), settings)
        if vocab.is_file():
            built = BertWordPieceTokenizer(str(vocab), lowercase=_is_lowercased(folder))
            return TextEncoder(Tokenizer.from_str(built.to_str()), settings)
    except FolderError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for every parse error
        raise FolderError(f"cannot be read as a tokenizer: {error}", place=str(folder)) from error
    raise MissingFileError(
        "there is neither tokenizer.json nor vocab.txt",
        place=str(folder),
        remedy="Copy the tokenizer of the model into this folder.",
    )


def _is_lowercased(folder: Path) -> bool:
    # Hugging Face keeps it beside the vocabulary; BERT's own default is lower case.
    path = folder / "tokenizer_config.json"
    return bool(read_json(path).get("do_lower_case", True)) if path.is_file() else True


def align_labels(
    word_labels: Sequence[int] | NDArray[np.int32], word_ids: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return one label per token: a word's label on its first token, -100 elsewhere.

    ``int32 [seq]``. Only the first token of a word counts, as in Devlin et al. 2019
    (BERT, section 5.3), so that long words do not weigh more.

    Example: labels ``[4, 7]``, word_ids ``[-1, 0, 0, 1, -1]`` -> ``[-100, 4, -100, 7, -100]``.
    """
    labels = np.full(len(word_ids), IGNORED_LABEL, dtype=np.int32)
    begins_word = word_ids >= 0
    begins_word[1:] &= word_ids[1:] != word_ids[:-1]
    labels[begins_word] = np.asarray(word_labels, dtype=np.int32)[word_ids[begins_word]]
    return labels
