"""Finds the columns that the job asks for, by name or index, or says which is missing."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.config import DataSettings
from pipeline.contract.errors import DataError

_INDEX = re.compile(r"[0-9]{1,9}")
_SHOWN_NAMES = 20
_SHOWN_CHARS = 64
_SAVE_AGAIN = "save the file with commas or tabs."
_REMEDY_BY_DELIMITER = {
    "\t": "are its columns separated by tabs? Set data.format to tsv.",
    ";": f"are its columns separated by semicolons? That is not read; {_SAVE_AGAIN}",
    "|": f"are its columns separated by bars? That is not read; {_SAVE_AGAIN}",
    ",": "are its columns separated by commas? Set data.format to csv.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnPlaces:
    """Where the asked columns stand among a record's fields, from 0."""

    text: int
    label: int
    text_pair: int | None
    split: int | None


def asked_columns(data: DataSettings) -> dict[str, str]:
    """Return setting → column name of every column that the job asks for."""
    asked = {
        "data.text_column": data.text_column,
        "data.text_pair_column": data.text_pair_column,
        "data.label_column": data.label_column,
        "data.split_column": data.split_column,
    }
    return {setting: name for setting, name in asked.items() if name is not None}


def find_places(data: DataSettings, header: Sequence[str], place: str) -> ColumnPlaces:
    """Return where the asked columns stand under a header.

    A name that is not in the header and is all digits is an index from 0.

    Raises:
        DataError: a name stands twice in the header, a column is missing, or two settings
            ask for the same column.
    """
    demand_unique(header, place)
    asked = asked_columns(data)
    places = {setting: _place(header, name, setting, place) for setting, name in asked.items()}
    demand_distinct({setting: str(found) for setting, found in places.items()}, place)
    return ColumnPlaces(
        text=places["data.text_column"],
        label=places["data.label_column"],
        text_pair=places.get("data.text_pair_column"),
        split=places.get("data.split_column"),
    )


def demand_unique(header: Sequence[str], place: str) -> None:
    """Refuse a header that names a column twice; columns without a name do no harm.

    Raises:
        DataError: with the name.
    """
    counts = Counter(name for name in header if name.strip())
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        at = [str(index) for index, name in enumerate(header) if name == twice]
        raise DataError(
            f"the column {_short(twice)} stands twice (index {' and '.join(at)})",
            place=place,
            remedy="Rename one of them.",
        )


def demand_distinct(places: dict[str, str], place: str) -> None:
    """Refuse settings that ask for the same column.

    Raises:
        DataError: with the settings' names.
    """
    first: dict[str, str] = {}
    for setting, column in places.items():
        if first.setdefault(column, setting) != setting:
            raise DataError(
                f"{first[column]} and {setting} ask for the same column",
                place=place,
                remedy=f"Change {setting}.",
            )


def missing_column(place: str, name: str, known: Iterable[str], *, setting: str) -> DataError:
    """Return the error for a column that a file lacks, with the nearest name it has."""
    names = list(dict.fromkeys(known))
    by_lower = {known.lower(): known for known in reversed(names)}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if hint := _other_delimiter(names):
        return DataError(f"there is no column {name!r}", place=place, remedy=hint)
    shown = ", ".join(_short(known) for known in names[:_SHOWN_NAMES])
    more = f" and {len(names) - _SHOWN_NAMES:,} more" if len(names) > _SHOWN_NAMES else ""
    return DataError(
        f"there is no column {name!r}",
        place=place,
        remedy=(f"Did you mean {_short(by_lower[near[0]])}? " if near else "")
        + f"The file has {shown}{more}; set {setting}.",
    )


def _other_delimiter(names: Sequence[str]) -> str | None:
    # A header that is one column with separators inside was written with another delimiter.
    found = [mark for mark in _REMEDY_BY_DELIMITER if len(names) == 1 and mark in names[0]]
    if not found:
        return None
    return f"The header is one column, {_short(names[0])}: {_REMEDY_BY_DELIMITER[found[0]]}"


def _place(header: Sequence[str], name: str, setting: str, place: str) -> int:
    if name in header:
        return header.index(name)
    if _INDEX.fullmatch(name) and int(name) < len(header):
        return int(name)
    raise missing_column(place, name, header, setting=setting)


def _short(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_CHARS else f"{name[: _SHOWN_CHARS - 3]}...")
