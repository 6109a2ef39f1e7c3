"""What is sent: texts from a file or made up, as request bodies in an order that a seed fixes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.contract.errors import ConfigError, DataError
from serve_app.load.mix import MixEntry, make_text

_TEXTS_OF_AN_ENTRY = 512
"""Chosen: enough that none comes twice in a batch, made within a fraction of a second."""
_MAX_FILE_BYTES = 256 * 2**20
_JSONL = (".jsonl", ".ndjson")
_CLASS = "class"
_FIELDS = ("text", "text_pair", _CLASS)
_FROM_FILE = "texts of the file"


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """One request to send."""

    text_class: int
    """Index into the class names of its source."""
    body: bytes


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Bodies to draw requests from."""

    classes: tuple[str, ...]
    bodies: tuple[tuple[bytes, ...], ...]
    """For each class its bodies, never empty."""
    shares: tuple[float, ...]
    """Share of each class among the requests; the sum is 1."""

    def draw(self, seed: int) -> Iterator[Outgoing]:
        """Yield requests without end, always the same for a seed.

        A class's bodies come in shuffled order, each once before one comes again.
        """
        random = np.random.default_rng([seed, 2])
        orders = [random.permutation(len(bodies)) for bodies in self.bodies]
        taken = [0] * len(orders)
        while True:
            for drawn in random.choice(len(orders), size=1024, p=self.shares).tolist():
                order = orders[drawn]
                body = self.bodies[drawn][order[taken[drawn] % len(order)]]
                taken[drawn] += 1
                yield Outgoing(text_class=drawn, body=body)


def build_mix_source(entries: Sequence[MixEntry], *, seed: int) -> TextSource:
    """Return made-up texts for each entry of a mix."""
    random = np.random.default_rng([seed, 3])
    bodies = tuple(
        tuple(_as_body({"text": make_text(entry, random)}) for _ in range(_TEXTS_OF_AN_ENTRY))
        for entry in entries
    )
    total = sum(entry.share for entry in entries)
    return TextSource(
        classes=tuple(entry.name for entry in entries),
        bodies=bodies,
        shares=tuple(entry.share / total for entry in entries),
    )


def read_source(file: Path) -> TextSource:
    """Return the texts of a file: one on each line, or JSON lines (``.jsonl``, ``.ndjson``).

    A JSON line is an object with ``text``, for a model of pairs ``text_pair``, and ``class``
    where percentiles are wanted for each kind of text; other fields are passed over, and so
    are empty lines.

    Raises:
        ConfigError: the file cannot be read or is too large.
        DataError: a line is no text, or there is none; names file and line.
    """
    lines = _read_bytes(file).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    is_jsonl = file.suffix.lower() in _JSONL
    bodies: dict[str, list[bytes]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        text, place = _decode(line, f"{file}:{number}"), f"{file}:{number}"
        fields = _read_object(text, place) if is_jsonl else {"text": text.rstrip("\r")}
        bodies.setdefault(fields.pop(_CLASS, _FROM_FILE), []).append(_as_body(fields))
    if not bodies:
        raise DataError("has no texts", place=str(file), remedy="Write one text on each line.")
    num_texts = sum(map(len, bodies.values()))
    return TextSource(
        classes=tuple(bodies),
        bodies=tuple(map(tuple, bodies.values())),
        shares=tuple(len(those) / num_texts for those in bodies.values()),
    )


def _as_body(fields: dict[str, str]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def _read_bytes(file: Path) -> bytes:
    remedy = "Name a text file with one text on each line, or JSON lines."
    try:
        size = file.stat().st_size
        if size <= _MAX_FILE_BYTES:
            return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", place=f"--texts {file}", remedy=remedy
        ) from None
    raise ConfigError(
        f"is over the limit of {_MAX_FILE_BYTES:,} bytes",
        place=f"--texts {file}",
        value=size,
        remedy="Take a part of it, such as its first 100,000 lines.",
    )


def _decode(line: bytes, place: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise DataError(
            "is not UTF-8", place=place, value=line, remedy="Save the file as UTF-8."
        ) from None


def _read_object(line: str, place: str) -> dict[str, str]:
    remedy = 'Write {"text": "..."} on each line, or name the file .txt.'
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is no JSON: {error}", place=place, value=line, remedy=remedy) from None
    if not isinstance(row, dict) or "text" not in row:
        raise DataError("has no field text", place=place, value=line, remedy=remedy)
    fields = {name: row[name] for name in _FIELDS if row.get(name) is not None}
    for name in fields.keys() | {"text"}:
        if not isinstance(row[name], str) or not _is_unicode(row[name]):
            raise DataError(
                f"the field {name} is no Unicode text", place=place, value=row[name], remedy=remedy
            )
    return fields


def _is_unicode(text: str) -> bool:
    # JSON may escape half of a surrogate pair, which no UTF-8 can hold.
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
