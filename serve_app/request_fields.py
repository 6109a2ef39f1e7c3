"""The fields of a request, whatever they came as, to the model that they must fit."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from pipeline.contract.errors import BodyTooLargeError, InvalidRequestError

FEWER_TEXTS = "Send fewer or shorter texts at once."
_FieldsT = TypeVar("_FieldsT", bound=BaseModel)


def build_request(fields: Mapping[str, object], kind: type[_FieldsT], *, remedy: str) -> _FieldsT:
    """Return the request that has these fields; it is refused for its first mistake.

    Args:
        fields: as they came.
        kind: what they must make.
        remedy: what the client is told to send instead.

    Raises:
        InvalidRequestError: a field is missing or of the wrong type, or two do not go together.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = first["msg"].removeprefix("Value error, ")
        raise InvalidRequestError(
            problem[0].lower() + problem[1:], place=_name_field(first["loc"]), remedy=remedy
        ) from None


def too_large(max_bytes: int, *, remedy: str = FEWER_TEXTS) -> BodyTooLargeError:
    """Return the error of a body that is over the limit."""
    return BodyTooLargeError(
        f"the body is over the limit of {max_bytes} bytes",
        place="body",
        remedy=remedy,
    )


def _name_field(path: tuple[int | str, ...]) -> str:
    """Return ``texts[1]`` for ``("texts", 1)``, ``body`` for the whole."""
    name = str(path[0]) if path else "body"
    return name + "".join(f"[{part!r}]" for part in path[1:])
