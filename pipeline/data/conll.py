"""Reads CoNLL: one word a line in columns, a blank line after each sentence."""

import re
from collections.abc import Iterator

from pipeline.config import DataSettings
from pipeline.contract.errors import ConfigError
from pipeline.data.columns import demand_distinct, missing_column
from pipeline.data.rows import (
    RejectedRow,
    RejectReason,
    SourceRow,
    first_undecodable,
    no_rows,
    reject,
)
from pipeline.data.source_file import SourceFile

_DOCUMENT_MARK = "-DOCSTART-"
_INDEX = re.compile(r"-?[0-9]{1,9}")
_SPACES = re.compile(r"[ \t]+")


def read_conll(source: SourceFile, data: DataSettings) -> Iterator[SourceRow | RejectedRow]:
    """Yield the sentences of a CoNLL file in order; ``line`` is the first word's.

    Columns are separated by tabs where a line has one, else by spaces. The file's first
    word line sets the number of columns; a sentence with another number is rejected whole.

    Raises:
        ConfigError: a column is not an index, or a split column is asked for.
        DataError: the file cannot be read, has no sentence, or fewer columns than an index
            asks for.
    """
    word_at = _index(data.text_column, "data.text_column")
    label_at = _index(data.label_column, "data.label_column")
    if data.split_column is not None:
        raise ConfigError(
            f"{source.name} is CoNLL, which has no split column",
            place="data.split_column",
            value=data.split_column,
            remedy="Name the splits' files in data.validation_files and data.test_files.",
        )
    return _read_rows(source, word_at, label_at)


def _read_rows(
    source: SourceFile, word_at: int, label_at: int
) -> Iterator[SourceRow | RejectedRow]:
    num_columns = None
    for line, sentence in _read_sentences(source):
        if num_columns is None:
            num_columns = len(sentence[0])
            _check_places(word_at, label_at, num_columns, source.name)
        if any(len(fields) != num_columns for fields in sentence):
            yield reject(source.name, line, RejectReason.WRONG_COLUMN_COUNT, sentence)
            continue
        words = tuple(fields[word_at] for fields in sentence)
        labels = tuple(fields[label_at].strip() for fields in sentence)
        if first_undecodable(words + labels) is not None:
            yield reject(source.name, line, RejectReason.UNDECODABLE, " ".join(words))
        elif not all(labels):
            yield reject(source.name, line, RejectReason.LABEL_MISSING, " ".join(words))
        else:
            yield SourceRow(
                file=source.name, line=line, words=words, split=source.given_split, labels=labels
            )
    if num_columns is None:
        raise no_rows(source.name, "the file has no sentences")


def _index(column: str, setting: str) -> int:
    if not _INDEX.fullmatch(column):
        raise ConfigError(
            "CoNLL columns go by their index",
            place=setting,
            value=column,
            remedy='Set data.text_column to "0" and data.label_column to "-1", as text.',
        )
    return int(column)


def _check_places(word_at: int, label_at: int, num_columns: int, file: str) -> None:
    known = [str(index) for index in range(num_columns)]
    for setting, at in (("data.text_column", word_at), ("data.label_column", label_at)):
        if not -num_columns <= at < num_columns:
            raise missing_column(file, str(at), known, setting=setting)
    columns = {"data.text_column": known[word_at], "data.label_column": known[label_at]}
    demand_distinct(columns, file)


def _read_sentences(source: SourceFile) -> Iterator[tuple[int, list[list[str]]]]:
    sentence: list[list[str]] = []
    first_line = 0
    with source.open_text(newline="\n") as file:
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
