"""A request's texts to token rows: cleaned, checked, cut, each with its lane."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.contract.errors import EmptyTextError, InvalidRequestError, TextTooLongError
from pipeline.contract.tokenization import EncodedText, TextEncoder
from serve_app.config import ServingLimits

TOKEN_TASK = "token_classification"
LaneName = Literal["short", "long"]


@dataclass(frozen=True, kw_only=True)
class EncodedRow:
    """One text, ready for a lane."""

    encoded: EncodedText
    words: tuple[str, ...]
    """What ``encoded.word_ids`` index; empty for the sequence task."""
    lane: LaneName

    @property
    def num_tokens(self) -> int:
        """Tokens that the model sees."""
        return len(self.encoded.input_ids)


def choose_lane(num_tokens: int, limits: ServingLimits) -> LaneName:
    """Return the lane of a text with this many tokens."""
    return "short" if num_tokens <= limits.short_max_tokens else "long"


def name_places(num_texts: int) -> list[str]:
    """Return what errors call the texts of one request."""
    return [f"texts[{index}]" for index in range(num_texts)] if num_texts > 1 else ["text"]


def encode_texts(
    texts: Sequence[str],
    *,
    encoder: TextEncoder,
    task: str,
    limits: ServingLimits,
    places: Sequence[str] | None = None,
) -> list[EncodedRow]:
    """Return the rows of texts, in order; for the token task words are split at blanks.

    Args:
        texts: as they came.
        encoder: the bundle's tokenizer.
        task: the bundle's task.
        limits: what a text may carry.
        places: what errors call each text; ``text``, or ``texts[0]`` and so on by default.

    Raises:
        TextTooLongError: a text has more characters than allowed.
        EmptyTextError: nothing is left of a text after cleaning.
    """
    cleaned = []
    for place, text in zip(places or name_places(len(texts)), texts, strict=True):
        _check_chars(len(text), place, limits)
        clean = encoder.clean(text)
        if not clean:
            raise EmptyTextError("the text is empty", place=place, remedy="Send readable text.")
        cleaned.append(clean)
    if task == TOKEN_TASK:
        return _encode_word_rows([text.split(" ") for text in cleaned], encoder, limits)
    encoded = encoder.encode_texts(cleaned)
    return [
        EncodedRow(encoded=row, words=(), lane=choose_lane(len(row.input_ids), limits))
        for row in encoded
    ]


def encode_words(
    words: Sequence[str], *, encoder: TextEncoder, task: str, limits: ServingLimits
) -> EncodedRow:
    """Return the row of a text that comes as words.

    Raises:
        InvalidRequestError: the served model labels texts, not words.
        TextTooLongError: the words have more characters together than allowed.
        EmptyTextError: there is no word, or nothing is left of one after cleaning.
    """
    if task != TOKEN_TASK:
        raise InvalidRequestError(
            f"the served model does {task}; it takes no words",
            place="words",
            remedy="Send text or texts.",
        )
    if not words:
        raise EmptyTextError("there are no words", place="words", remedy="Send at least one.")
    _check_chars(sum(len(word) + 1 for word in words) - 1, "words", limits)
    cleaned = [encoder.clean(word) for word in words]
    for index, word in enumerate(cleaned):
        if not word:
            raise EmptyTextError(
                "the word is empty", place=f"words[{index}]", remedy="Leave the word out."
            )
    return _encode_word_rows([cleaned], encoder, limits)[0]


def _encode_word_rows(
    rows: list[list[str]], encoder: TextEncoder, limits: ServingLimits
) -> list[EncodedRow]:
    return [
        EncodedRow(
            encoded=encoded,
            words=tuple(words),
            lane=choose_lane(len(encoded.input_ids), limits),
        )
        for words, encoded in zip(rows, encoder.encode_words(rows), strict=True)
    ]


def _check_chars(num_chars: int, place: str, limits: ServingLimits) -> None:
    if num_chars > limits.max_text_chars:
        raise TextTooLongError(
            f"{num_chars} characters are over the limit of {limits.max_text_chars}",
            place=place,
            remedy="Send a shorter text, or its parts as texts.",
        )
