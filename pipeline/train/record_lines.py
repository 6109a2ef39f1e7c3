"""Lines of JSON as records; a line that a kill, a power cut or a hand has spoilt is passed over."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

RecordT = TypeVar("RecordT")


@dataclass(frozen=True, kw_only=True)
class ReadLines(Generic[RecordT]):
    """What a file's lines hold."""

    records: list[RecordT]
    """Of the good lines, in order."""
    num_bad: int
    """Lines that were passed over."""


def whole_lines(content: bytes) -> list[bytes]:
    """Return the lines that have their end; a kill may leave a part of one after it.

    Bytes are split only where JSON has no characters, text also at some that a message may hold.
    """
    return content.split(b"\n")[:-1]


def read_lines(lines: Sequence[bytes], kind: type[RecordT]) -> ReadLines[RecordT]:
    """Return the records of a kind (a dataclass) that lines of JSON hold.

    A line is bad if it is not JSON, lacks a field, or has one of another type or not finite.
    """
    reader: TypeAdapter[RecordT] = _reader_of(cast(Hashable, kind))  # mypy doubts that types are.
    read = [_read_line(line, reader) for line in lines]
    records = [record for record in read if record is not None]
    return ReadLines(records=records, num_bad=len(read) - len(records))


def _read_line(line: bytes, reader: TypeAdapter[RecordT]) -> RecordT | None:
    try:
        record = reader.validate_json(line, strict=True)
    except ValidationError:
        return None
    numbers = (value for value in vars(record).values() if isinstance(value, float))
    return record if all(map(math.isfinite, numbers)) else None


@cache
def _reader_of(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))
