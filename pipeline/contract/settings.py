"""Layered settings: file < environment < --set, typed by pydantic, each value with its origin."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.contract.errors import ConfigError
from pipeline.contract.setting_mistakes import describe_mistake


class Settings(BaseModel):
    """Base of every settings section: frozen, unknown keys refused, no silent conversion."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
    hint: ClassVar[str] = ""
    """Sentence for remedies: where people find all settings of this schema explained."""


# PyYAML lets ValueError (a date such as 2026-99-99) and RecursionError (deep nesting) through.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
# YAML 1.1 takes 3e-4 for a string; people write learning rates that way.
_EXPONENT_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")

SettingsT = TypeVar("SettingsT", bound=Settings)


@dataclass(frozen=True, kw_only=True)
class Loaded(Generic[SettingsT]):
    """Checked settings and, for each dotted field, where its value came from."""

    settings: SettingsT
    origins: dict[str, str]


def load_settings(
    kind: type[SettingsT],
    *,
    file: Path | None,
    env_prefix: str,
    foreign_prefixes: Sequence[str] = (),
    sets: Sequence[str] = (),
) -> Loaded[SettingsT]:
    """Return settings merged from a YAML file, ``PREFIX__A__B=…`` variables and ``a.b=…``.

    Args:
        kind: the schema.
        file: YAML file whose top level is a mapping, or None for defaults only.
        env_prefix: such as ``TEXTLANE``; ``TEXTLANE_TRAIN__BASE_LR`` sets ``train.base_lr``.
        foreign_prefixes: beginnings of variables that belong to another schema.
        sets: ``key=value`` strings; values are read as YAML.

    Raises:
        ConfigError: with field, value and remedy.
    """
    values = read_yaml_mapping(file, hint=kind.hint) if file else {}
    return settings_from_mapping(
        kind,
        values,
        source=str(file) if file else "the defaults",
        env_prefix=env_prefix,
        foreign_prefixes=foreign_prefixes,
        sets=sets,
    )


def settings_from_mapping(
    kind: type[SettingsT],
    values: Mapping[str, Any],
    *,
    source: str,
    env_prefix: str,
    foreign_prefixes: Sequence[str] = (),
    sets: Sequence[str] = (),
) -> Loaded[SettingsT]:
    """Do what :func:`load_settings` does, for a mapping that was read elsewhere."""
    merged = _with_text_keys(values)
    origins = {key: source for key, _ in _leaves(merged)}
    for name, text in sorted(os.environ.items()):
        if name.startswith(f"{env_prefix}_") and not name.startswith(tuple(foreign_prefixes)):
            key = name.removeprefix(f"{env_prefix}_").lower().replace("__", ".")
            _put(merged, key, _read_value(text, name), name)
            origins = _with_origin(origins, key, f"environment {name}")
    for item in sets:
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--set needs key=value", value=item, remedy="Write --set a.b=1.")
        _put(merged, key.strip(), _read_value(text, "--set"), "--set")
        origins = _with_origin(origins, key.strip(), "--set")
    try:
        settings = kind.model_validate(merged)
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in mistake["loc"])
        origin = _origin_of(origins, field) or source
        raise describe_mistake(kind, mistake, origin=origin, hint=kind.hint) from None
    return Loaded(settings=settings, origins=_complete_origins(settings, origins))


def read_yaml_mapping(file: Path, *, hint: str) -> dict[str, Any]:
    """Return a YAML file's mapping.

    Args:
        file: the file.
        hint: where people find what stands in such a file.

    Raises:
        ConfigError: the file cannot be read, is not YAML or is not a mapping.
    """
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"the configuration cannot be read: {error.strerror}",
            place=str(file),
            remedy=f"Name an existing file with --config. {hint}",
        ) from None
    except _NOT_YAML as error:
        raise _not_yaml(file, error, hint) from None
    if values is None:
        raise ConfigError(
            "the file is empty; it must hold a mapping of sections", place=str(file), remedy=hint
        )
    if not isinstance(values, dict):
        raise ConfigError(
            "the file must hold a mapping of sections",
            place=str(file),
            value=values,
            remedy=f"Write `key: value` lines. {hint}",
        )
    return values


def describe_settings(loaded: Loaded[SettingsT]) -> list[tuple[str, Any, str]]:
    """Return (dotted field, value, origin) of every field, in the schema's order."""
    leaves = _leaves(loaded.settings.model_dump(mode="json"))
    return [(key, value, loaded.origins.get(key, "default")) for key, value in leaves]


def _with_text_keys(values: Mapping[Any, Any]) -> dict[str, Any]:
    # YAML reads `0: negative` with an integer key; every key of ours is text.
    return {
        str(key): _with_text_keys(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
    }


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found.extend(_leaves(value, f"{name}."))
        else:
            found.append((name, value))
    return found


def _with_origin(origins: Mapping[str, str], key: str, origin: str) -> dict[str, str]:
    # A section that is set as a whole replaces what the file said inside it.
    kept = {name: value for name, value in origins.items() if not name.startswith(f"{key}.")}
    return {**kept, key: origin}


def _origin_of(origins: Mapping[str, str], field: str) -> str | None:
    """Return the origin of a field: its own, or that of the nearest section set as a whole."""
    parts = field.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((origins[name] for name in names if name in origins), None)


def _complete_origins(settings: Settings, origins: dict[str, str]) -> dict[str, str]:
    names = [key for key, _ in _leaves(settings.model_dump(mode="json"))]
    return {name: _origin_of(origins, name) or "default" for name in names}


def _put(target: dict[str, Any], dotted: str, value: Any, source: str) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):
            raise ConfigError(
                f"{parent} is a single value, not a section",
                place=f"{source}: {dotted}",
                value=value,
                remedy=f"Set {parent} itself.",
            )
    target[last] = value


def _read_value(text: str, source: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except _NOT_YAML:
        raise ConfigError(
            "the value is not YAML", place=source, value=text, remedy="Quote it if it is text."
        ) from None
    return read_exponent_number(value)


def read_exponent_number(value: Any) -> Any:
    """Return a text such as ``3e-4`` as a number, anything else as it is."""
    if isinstance(value, str) and _EXPONENT_NUMBER.fullmatch(value):
        return float(value)
    return value


def _not_yaml(file: Path, error: Exception, hint: str) -> ConfigError:
    place, cause = str(file), str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        place = f"{file}:{error.problem_mark.line + 1}"
        cause = error.problem or cause
    return ConfigError(
        f"not valid YAML: {' '.join(cause.split())}",
        place=place,
        remedy="Correct this line or one above it: `key: value`, equal indents inside a section, "
        f"quotes around special characters. {hint}",
    )
