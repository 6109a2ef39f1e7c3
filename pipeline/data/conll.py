"""Reads CoNLL: one word a line in columns, a blank line after each sentence."""

import re
from collections.abc import Iterator

from pipeline.contract.errors import ConfigError
from pipeline.data.rows import (
    RejectedRow,
    RejectReason,
    SourceRow,
    is_decodable,
    missing_column,
    no_rows,
    reject,
)
from pipeline.data.sources import SourceFile

_DOCUMENT_MARK = "-DOCSTART-"
_SPACES = re.compile(r"[ \t]+")


def read_conll(
    source: SourceFile, *, text_column: str, label_column: str
) -> Iterator[SourceRow | RejectedRow]:
    """Yield the sentences of a CoNLL file in order; ``line`` is the first word's.

    Columns are separated by tabs where a line has one, else by spaces. The file's first
    word line sets the number of columns; a sentence with another number is rejected whole.

    Raises:
        ConfigError: a column is not an index.
        DataError: the file has no sentence or fewer columns than an index asks for.
    """
    word_at = _index(text_column, "data.text_column")
    label_at = _index(label_column, "data.label_column")
    num_columns = None
    for line, sentence in _read_sentences(source):
        if num_columns is None:
            num_columns = len(sentence[0])
            _check_index(word_at, num_columns, source.name)
            _check_index(label_at, num_columns, source.name)
        if any(len(fields) != num_columns for fields in sentence):
            yield reject(source.name, line, RejectReason.WRONG_COLUMN_COUNT, sentence)
            continue
        words = tuple(fields[word_at] for fields in sentence)
        labels = tuple(fields[label_at].strip() for fields in sentence)
        if not is_decodable(words + labels):
            yield reject(source.name, line, RejectReason.UNDECODABLE, " ".join(words))
        elif not all(labels):
            yield reject(source.name, line, RejectReason.LABEL_MISSING, " ".join(words))
        else:
            yield SourceRow(file=source.name, line=line, words=words, labels=labels)
    if num_columns is None:
        raise no_rows(source.name, "the file has no sentences")


def _index(column: str, setting: str) -> int:
    try:
        return int(column)
    except ValueError:
        raise ConfigError(
            "CoNLL columns go by their index",
            place=setting,
            value=column,
            remedy='Set data.text_column to "0" and data.label_column to "-1", as text.',
        ) from None


def _check_index(index: int, num_columns: int, file: str) -> None:
    if not -num_columns <= index < num_columns:
        raise missing_column(file, str(index), (str(known) for known in range(num_columns)))


def _read_sentences(source: SourceFile) -> Iterator[tuple[int, list[list[str]]]]:
    sentence: list[list[str]] = []
    first_line = 0
    with source.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        for line, content in enumerate(file, start=1):
            content = content.rstrip("\r\n")
            if not content.strip(" \t"):
                if sentence:
                    yield first_line, sentence
                sentence = []
                continue
            if content.startswith(_DOCUMENT_MARK):
                continue
            first_line = first_line if sentence else line
            sentence.append(_split(content))
    if sentence:
        yield first_line, sentence


def _split(content: str) -> list[str]:
    return content.split("\t") if "\t" in content else _SPACES.split(content.strip(" "))
