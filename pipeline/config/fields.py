"""Types of the settings' values that several sections share."""

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0, strict=False)]
PositiveFloat = Annotated[float, Field(gt=0.0, strict=False)]
# `--set data.text_column=0` arrives as a number.
ColumnName = Annotated[str, Field(strict=False, coerce_numbers_to_str=True, min_length=1)]
Locations = Annotated[tuple[str, ...], Field(strict=False)]
Lenient = Field(strict=False)
