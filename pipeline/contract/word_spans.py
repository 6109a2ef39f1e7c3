"""The words of a text and where they stand in it as it was sent."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.contract.tokenization import HTML_TAG, TextSettings

# What `html.unescape` replaces (HTML standard, character references); it takes no blanks, so
# cutting the text at tags first changes nothing.
_REFERENCE = re.compile(r"&(#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)")
_PLAIN_WORD = re.compile(r"[^\s\x00]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class WordSpan:
    """One word of a cleaned text."""

    word: str
    start: int | None
    """Its first character in the text as it came (Unicode code points); None for a word that
    came alone."""
    end: int | None
    """One past its last character there."""


def find_words(text: str, settings: TextSettings) -> list[WordSpan]:
    """Return the words that ``clean_text(text, settings).split(" ")`` has, with their places.

    Example: ``"Good  film"`` -> words at 0 to 4 and 6 to 10.
    """
    pieces: Iterator[tuple[str, int, int]] = _plain_pieces(text)
    if settings.strip_html:
        pieces = _html_pieces(text)
    words: list[WordSpan] = []
    letters, start, end = "", 0, 0
    for piece, piece_start, piece_end in pieces:
        if not piece:  # A break between words.
            if letters:
                words.append(WordSpan(word=letters, start=start, end=end))
            letters = ""
            continue
        start = piece_start if not letters else start
        letters, end = letters + piece, piece_end
    if letters:
        words.append(WordSpan(word=letters, start=start, end=end))
    return words


def _plain_pieces(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _PLAIN_WORD.finditer(text):
        # As clean_text does: a lone surrogate is no character.
        letters = match[0].encode("utf-8", "ignore").decode("utf-8")
        if letters:
            yield letters, match.start(), match.end()
        yield "", match.end(), match.end()


def _html_pieces(text: str) -> Iterator[tuple[str, int, int]]:
    start = 0
    for tag in HTML_TAG.finditer(text):
        yield from _referenced_pieces(text, start, tag.start())
        yield "", tag.start(), tag.end()
        start = tag.end()
    yield from _referenced_pieces(text, start, len(text))


def _referenced_pieces(text: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    for match in _REFERENCE.finditer(text, start, end):
        yield from _characters(text[start : match.start()], start)
        for character in html.unescape(match[0]):
            yield _as_piece(character), match.start(), match.end()
        start = match.end()
    yield from _characters(text[start:end], start)


def _characters(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    for index, character in enumerate(text, start):
        if not "\ud800" <= character <= "\udfff":
            yield _as_piece(character), index, index + 1


def _as_piece(character: str) -> str:
    return "" if character.isspace() or character == "\x00" else character
