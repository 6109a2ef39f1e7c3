"""Says what is wrong with a setting in words for people: field, value, meaning, remedy."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipeline.contract.errors import ConfigError

_Location = Sequence[str | int]


def describe_mistake(
    kind: type[BaseModel], mistake: ErrorDetails, *, origin: str, hint: str
) -> ConfigError:
    """Return the error for pydantic's first complaint about a mapping of settings.

    Args:
        kind: the schema of the whole mapping.
        mistake: an element of ``ValidationError.errors()``.
        origin: the file, variable or option that the value came from.
        hint: where people find all settings explained.
    """
    location, sort = mistake["loc"], mistake["type"]
    field = ".".join(str(part) for part in location)
    place = f"{origin}: {field}" if field else origin
    value = mistake.get("input")
    if sort == "extra_forbidden":
        remedy = _nearest_names(kind, location)
        return ConfigError("unknown setting", place=place, value=value, remedy=remedy)
    if sort == "missing":
        remedy = f"Add it to the file. {_meaning(kind, location)}{hint}"
        return ConfigError("the setting is missing", place=place, remedy=remedy)
    if sort == "value_error":
        return ConfigError(str(mistake.get("ctx", {}).get("error")), place=place)
    problem, example = _in_our_words(mistake, field)
    remedy = example or f"{_meaning(kind, location)}{hint}"
    return ConfigError(problem, place=place, value=value, remedy=remedy or f"Correct {field}.")


def _in_our_words(mistake: ErrorDetails, field: str) -> tuple[str, str | None]:
    # pydantic speaks of Python's types; people write YAML.
    a_list = f"""Write a list, such as {field}=["a.csv"]."""
    match mistake["type"]:
        case "tuple_type" | "list_type":
            return "input should be a list", a_list
        case "too_short":
            least = mistake["ctx"]["min_length"]
            return f"the list should have at least {least} item{'s' * (least > 1)}", a_list
        case "dict_type":
            return (
                "input should be a mapping",
                f"""Write one, such as {field}={{"0": "negative"}}.""",
            )
        case "model_type" | "model_attributes_type":
            example = f"Set what is in it, as {field}.NAME=VALUE."
            return "input should be a section, which is a mapping of settings", example
    return mistake["msg"][0].lower() + mistake["msg"][1:], None


def _meaning(kind: type[BaseModel], location: _Location) -> str:
    model: Any = kind
    meaning = ""
    for part in location:
        if isinstance(part, int):
            model = _item_of(model)
            continue
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            break
        model, meaning = field.annotation, field.description or ""
    text = " ".join(meaning.split())
    return f"It means: {text} " if text else ""


def _nearest_names(kind: type[BaseModel], location: _Location) -> str:
    model: Any = kind
    for part in location[:-1]:
        if isinstance(part, int):
            model = _item_of(model)
            continue
        field = model.model_fields.get(part) if hasattr(model, "model_fields") else None
        model = field.annotation if field else None
    known = sorted(getattr(model, "model_fields", {}))
    last = str(location[-1])
    elsewhere = [name for name, _ in leaf_fields(kind) if name.rpartition(".")[2] == last]
    near = elsewhere or difflib.get_close_matches(last, known, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Known settings here: {', '.join(known)}."


def _item_of(kind: Any) -> Any:
    """Return the type of a list's items, None if it is no list."""
    return next(iter(get_args(kind)), None)


def leaf_fields(kind: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield (dotted name, field) of every setting that is no section, in the schema's order."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from leaf_fields(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field
