"""A request's texts to token rows: cleaned, checked, cut, each with its lane."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.contract.errors import (
    EmptyTextError,
    InvalidRequestError,
    RequestError,
    TextTooLongError,
    TooManyTokensError,
)
from pipeline.contract.tokenization import TextEncoder
from pipeline.contract.word_spans import WordSpan, find_words
from serve_app.limits import LaneName, ServingLimits

TOKEN_TASK = "token_classification"
MULTI_LABEL_TASK = "multi_label_classification"


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedRow:
    """One text, ready for a lane."""

    input_ids: NDArray[np.int32]
    """``int32 [seq]``, special tokens included."""
    is_truncated: bool
    lane: LaneName
    words: tuple[WordSpan, ...] = ()
    """What ``word_ids`` index; empty where texts are labelled as a whole."""
    word_ids: NDArray[np.int32] | None = None
    """``int32 [seq]``: index of each token's word, -1 for special tokens."""

    @property
    def num_tokens(self) -> int:
        """Tokens that the model sees."""
        return len(self.input_ids)


def choose_lane(num_tokens: int, limits: ServingLimits) -> LaneName:
    """Return the lane of a text with this many tokens."""
    return "short" if num_tokens <= limits.short_max_tokens else "long"


def name_places(num_texts: int) -> list[str]:
    """Return what errors call the texts of a list."""
    return [f"texts[{index}]" for index in range(num_texts)]


def encode_texts(
    texts: Sequence[object],
    *,
    encoder: TextEncoder,
    task: str,
    limits: ServingLimits,
    places: Sequence[str] | None = None,
) -> list[EncodedRow | RequestError]:
    """Return the rows of texts, in order; what cannot be a row is the error that says why.

    For the token task words are split at blanks.

    Args:
        texts: as they came.
        encoder: the bundle's tokenizer.
        task: the bundle's task.
        limits: what a text may carry.
        places: what errors call each text; ``texts[0]`` and so on by default.
    """
    places = places or name_places(len(texts))
    kept: dict[int, str] = {}
    outcomes: dict[int, EncodedRow | RequestError] = {}
    for index, (text, place) in enumerate(zip(texts, places, strict=True)):
        try:
            kept[index] = _clean(text, encoder=encoder, limits=limits, place=place)
        except RequestError as error:
            outcomes[index] = error
    rows: list[EncodedRow] = []
    if task == TOKEN_TASK:
        words = [find_words(str(texts[index]), encoder.settings) for index in kept]
        rows = _encode_word_rows(words, encoder, limits)
    elif kept:
        rows = _encode_whole(list(kept.values()), encoder, limits)
    for index, row in zip(kept, rows, strict=True):
        outcomes[index] = _check_tokens(row, places[index], limits)
    return [outcomes[index] for index in range(len(texts))]


def encode_pair(
    text: str,
    text_pair: str,
    *,
    encoder: TextEncoder,
    limits: ServingLimits,
    places: tuple[str, str] = ("text", "text_pair"),
) -> EncodedRow:
    """Return the row of a pair of texts.

    Args:
        text: as it came.
        text_pair: as it came.
        encoder: the bundle's tokenizer.
        limits: what each of the two texts may carry.
        places: what errors call the two texts.

    Raises:
        TextTooLongError: a text has more characters than allowed.
        EmptyTextError: nothing is left of a text after cleaning.
        TooManyTokensError: the pair is over max_seq_len, and the limits refuse that.
    """
    first, second = (
        _clean(part, encoder=encoder, limits=limits, place=place)
        for part, place in zip((text, text_pair), places, strict=True)
    )
    (encoded,) = encoder.encode_pairs([(first, second)])
    row = EncodedRow(
        input_ids=encoded.input_ids,
        is_truncated=encoded.is_truncated,
        lane=choose_lane(len(encoded.input_ids), limits),
    )
    return _accept_tokens(row, places[0], limits)


def check_pairing(*, is_pair: bool, takes_pairs: bool, place: str = "text_pair") -> None:
    """Check that a model of pairs gets a pair, and any other model none.

    Args:
        is_pair: whether there is a second text.
        takes_pairs: as the bundle's manifest says.
        place: where the second text is given.

    Raises:
        InvalidRequestError: with what to give instead.
    """
    if takes_pairs and not is_pair:
        raise InvalidRequestError(
            "the model labels pairs of texts; the second text is missing",
            place=place,
            remedy=f"Give one text and, as {place}, the second text of its pair.",
        )
    if is_pair and not takes_pairs:
        raise InvalidRequestError(
            "the model labels single texts; it takes no pair",
            place=place,
            remedy=f"Leave {place} out.",
        )


def encode_words(
    words: Sequence[str], *, encoder: TextEncoder, task: str, limits: ServingLimits
) -> EncodedRow:
    """Return the row of a text that comes as words.

    Raises:
        InvalidRequestError: the served model labels texts, not words.
        TextTooLongError: the words have more characters together than allowed.
        EmptyTextError: there is no word, or nothing is left of one after cleaning.
        TooManyTokensError: the words are over max_seq_len, and the limits refuse that.
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
    words_alone = [WordSpan(word=word, start=None, end=None) for word in cleaned]
    (row,) = _encode_word_rows([words_alone], encoder, limits)
    return _accept_tokens(row, "words", limits)


def _encode_whole(
    cleaned: list[str], encoder: TextEncoder, limits: ServingLimits
) -> list[EncodedRow]:
    batch = encoder.encode_batch(cleaned)
    ends = batch.lengths.cumsum().tolist()
    return [
        EncodedRow(
            input_ids=batch.input_ids[end - length : end],
            is_truncated=is_truncated,
            lane=choose_lane(length, limits),
        )
        for end, length, is_truncated in zip(
            ends, batch.lengths.tolist(), batch.is_truncated.tolist(), strict=True
        )
    ]


def _encode_word_rows(
    rows: list[list[WordSpan]], encoder: TextEncoder, limits: ServingLimits
) -> list[EncodedRow]:
    encodings = encoder.encode_words([[span.word for span in row] for row in rows])
    return [
        EncodedRow(
            input_ids=encoded.input_ids,
            is_truncated=encoded.is_truncated,
            lane=choose_lane(len(encoded.input_ids), limits),
            words=tuple(words),
            word_ids=encoded.word_ids,
        )
        for words, encoded in zip(rows, encodings, strict=True)
    ]


def _check_tokens(
    row: EncodedRow, place: str, limits: ServingLimits
) -> EncodedRow | TooManyTokensError:
    if row.is_truncated and limits.refuses_too_long:
        return TooManyTokensError(
            f"over the limit of {limits.max_seq_len} tokens",
            place=place,
            remedy="Send a shorter text, or its parts as texts.",
        )
    return row


def _accept_tokens(row: EncodedRow, place: str, limits: ServingLimits) -> EncodedRow:
    checked = _check_tokens(row, place, limits)
    if isinstance(checked, TooManyTokensError):
        raise checked
    return checked


def _clean(text: object, *, encoder: TextEncoder, limits: ServingLimits, place: str) -> str:
    if not isinstance(text, str):
        kind = type(text).__name__
        raise InvalidRequestError(f"a text must be a string, not {kind}", place=place)
    _check_chars(len(text), place, limits)
    clean = encoder.clean(text)
    if not clean:
        raise EmptyTextError("the text is empty", place=place, remedy="Send readable text.")
    return clean


def _check_chars(num_chars: int, place: str, limits: ServingLimits) -> None:
    if num_chars > limits.max_text_chars:
        raise TextTooLongError(
            f"{num_chars} characters are over the limit of {limits.max_text_chars}",
            place=place,
            remedy="Send a shorter text, or its parts as texts.",
        )
