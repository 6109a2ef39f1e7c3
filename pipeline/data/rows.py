"""What a reader gives: a row as it stands in its file, or why it cannot be used."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipeline.contract.errors import DataError

_SHOWN_CHARS = 200


class RejectReason(StrEnum):
    """Why a row is not used; the keys of the manifest's ``rejected_by_reason``."""

    UNDECODABLE = "undecodable"
    """Bytes outside the encoding, or lone surrogates that JSON spells."""
    BROKEN_QUOTES = "broken_quotes"
    BROKEN_JSON = "broken_json"
    NOT_AN_OBJECT = "not_an_object"
    WRONG_COLUMN_COUNT = "wrong_column_count"
    REPEATED_HEADER = "repeated_header"
    """The header stands again among the rows, as in files that were joined."""
    TEXT_MISSING = "text_missing"
    """No value for the text, or for the second text of a pair."""
    TEXT_NOT_STRING = "text_not_string"
    EMPTY_TEXT = "empty_text"
    LABEL_MISSING = "label_missing"
    LABEL_NOT_SCALAR = "label_not_scalar"
    """A list or object where one label is expected."""
    LABEL_NOT_LIST = "label_not_list"
    """One value where multi-label expects a list and ``data.label_separator`` is not set."""
    LABEL_OTHER_TYPE = "label_other_type"
    """Not of the kind (text, number, boolean) of the file's first label, or a fraction."""
    UNKNOWN_LABEL = "unknown_label"
    """``data.label_names`` is set and does not name the label."""
    UNKNOWN_SPLIT = "unknown_split"
    """The split column is empty or names none of train, validation and test."""
    WORDS_NOT_ALIGNED = "words_not_aligned"
    """Words and labels are not two lists of the same length."""
    UNUSABLE_WORD = "unusable_word"
    """A word is empty after cleaning, or holds a blank."""
    CONFLICTING_LABELS = "conflicting_labels"
    """The same text stands elsewhere with another label: none of them is used."""
    DUPLICATE = "duplicate"
    """The same text with the same label came before: harmless, so not a bad row."""

    @property
    def is_bad(self) -> bool:
        """Whether the row counts towards ``max_bad_share`` and stops ``on_bad_rows: fail``."""
        return self is not RejectReason.DUPLICATE


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRow:
    """One readable row: a text with its label, or words with one label each."""

    file: str
    line: int
    """Line on which the row begins, from 1; for Parquet the number of the row."""
    text: str = ""
    text_pair: str | None = None
    """Second text of a pair."""
    split: str | None = None
    """``train``, ``validation`` or ``test`` where the file or a column says so."""
    words: tuple[str, ...] | None = None
    labels: tuple[str, ...]
    """Labels as they stand in the file: one for a text (any number, sorted, for
    multi-label), one for each word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedRow:
    """One row that is not used."""

    file: str
    line: int
    reason: RejectReason
    value: str
    """The offending value, shortened to 200 characters."""


def reject(file: str, line: int, reason: RejectReason, value: Any) -> RejectedRow:
    """Return the rejection of a row, its value as short printable text."""
    text = value if isinstance(value, str) else repr(value)
    # Undecodable bytes came in as lone surrogates; a report must be able to show them.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) > _SHOWN_CHARS:
        text = f"{text[: _SHOWN_CHARS - 3]}..."
    return RejectedRow(file=file, line=line, reason=reason, value=text)


def first_undecodable(texts: Iterable[str]) -> str | None:
    r"""Return the first text that is not Unicode, if any.

    It holds lone surrogates: bytes outside the file's encoding come as such, and JSON can
    spell them (``\ud800``).
    """
    for text in texts:
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                return text
    return None


def no_rows(file: str, problem: str) -> DataError:
    """Return the error for a file that holds nothing to read."""
    return DataError(problem, place=file, remedy="Fill the file or take it out of the job.")
