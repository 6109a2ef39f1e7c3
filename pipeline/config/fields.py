"""Types of the settings' values that several sections share."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL character stands in it. Take it out.")
    return text


def _without_password(location: str) -> str:
    # Locations stand in manifests, reports and messages.
    if _PASSWORD.search(location):
        raise ValueError(
            "the location holds a password. Take it out and put it where the file system's "
            "package looks for it, such as ~/.config/fsspec."
        )
    return location


def _as_list(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0, strict=False)]
PositiveFloat = Annotated[float, Field(gt=0.0, strict=False)]
# `--set data.text_column=0` arrives as a number.
ColumnName = Annotated[
    str,
    Field(strict=False, coerce_numbers_to_str=True, min_length=1, max_length=256),
    AfterValidator(_without_nul),
]
Location = Annotated[
    str,
    Field(min_length=1, max_length=4096),
    AfterValidator(_without_nul),
    AfterValidator(_without_password),
]
# One location may stand without a list around it.
Locations = Annotated[
    tuple[Location, ...],
    Field(strict=False),
    BeforeValidator(_as_list),
]
Lenient = Field(strict=False)
