"""A request's texts to token rows: cleaned, checked, cut, each with its lane."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.contract.errors import EmptyTextError, InvalidRequestError, TextTooLongError
from pipeline.contract.tokenization import EncodedText, TextEncoder
from serve_app.limits import LaneName, ServingLimits

TOKEN_TASK = "token_classification"
MULTI_LABEL_TASK = "multi_label_classification"


@dataclass(frozen=True, kw_only=True)
class EncodedRow:
    """One text, ready for a lane."""

    encoded: EncodedText
    words: tuple[str, ...]
    """What ``encoded.word_ids`` index; empty where texts are labelled as a whole."""
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
    places = places or name_places(len(texts))
    cleaned = [
        _clean(text, encoder=encoder, limits=limits, place=place)
        for place, text in zip(places, texts, strict=True)
    ]
    if task == TOKEN_TASK:
        return _encode_word_rows([text.split(" ") for text in cleaned], encoder, limits)
    return [_as_row(encoded, limits) for encoded in encoder.encode_texts(cleaned)]


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
    """
    first, second = (
        _clean(part, encoder=encoder, limits=limits, place=place)
        for part, place in zip((text, text_pair), places, strict=True)
    )
    return _as_row(encoder.encode_pairs([(first, second)])[0], limits)


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


def _as_row(encoded: EncodedText, limits: ServingLimits) -> EncodedRow:
    return EncodedRow(encoded=encoded, words=(), lane=choose_lane(len(encoded.input_ids), limits))


def _clean(text: str, *, encoder: TextEncoder, limits: ServingLimits, place: str) -> str:
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
