"""Explains a schema: each setting with its meaning, what it may be, and its default."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import model_json_schema

from pipeline.contract.setting_mistakes import leaf_fields
from pipeline.contract.settings import Loaded, Settings

REQUIRED = "none, must be set"


@dataclass(frozen=True, kw_only=True)
class SettingHelp:
    """What people need to know about one setting."""

    key: str
    """Dotted name."""
    meaning: str
    allowed: str
    """Such as ``whole number from 1`` or ``fp32, bf16 or fp16``."""
    default: str
    """JSON text, or :data:`REQUIRED`."""


def explain_settings(kind: type[Settings]) -> list[SettingHelp]:
    """Return the help of every setting of a schema, in its order."""
    schema = model_json_schema(kind)
    found = []
    for key, field in leaf_fields(kind):
        default = field.get_default(call_default_factory=True)
        is_required = field.is_required()
        found.append(
            SettingHelp(
                key=key,
                meaning=" ".join((field.description or "").replace("``", "`").split()),
                allowed=_allowed(_find(schema, key), schema),
                default=REQUIRED if is_required else json.dumps(default, ensure_ascii=False),
            )
        )
    return found


def as_json(helps: Sequence[SettingHelp], loaded: Loaded[Any] | None) -> str:
    """Return JSON of every setting by name; of a job also its value and where it came from."""
    values = {
        given.key: {
            "meaning": given.meaning,
            "allowed": given.allowed,
            "default": None if given.default == REQUIRED else json.loads(given.default),
            **_value_of(given.key, loaded),
        }
        for given in helps
    }
    return json.dumps(values, indent=2, ensure_ascii=False)


def as_text(helps: Sequence[SettingHelp], loaded: Loaded[Any] | None) -> str:
    """Return a paragraph for every setting; of a job also its value and where it came from."""
    paragraphs = []
    for given in helps:
        lines = [given.key, given.meaning, f"{given.allowed}; default: {given.default}"]
        if found := _value_of(given.key, loaded):
            lines.append(
                f"here: {json.dumps(found['value'], ensure_ascii=False)} ({found['from']})"
            )
        paragraphs.append("\n    ".join(lines))
    return "\n\n".join(paragraphs)


def _value_of(key: str, loaded: Loaded[Any] | None) -> dict[str, Any]:
    if loaded is None:
        return {}
    value = loaded.settings.model_dump(mode="json")
    for part in key.split("."):
        value = value[part]
    # Of a mapping every entry has an origin of its own.
    names = (name for name in loaded.origins if name == key or name.startswith(f"{key}."))
    origins = dict.fromkeys(loaded.origins[name] for name in names)
    return {"value": value, "from": ", ".join(origins)}


def _find(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    node: Mapping[str, Any] = schema
    for part in key.split("."):
        node = _resolve(node, schema)["properties"][part]
    return _resolve(node, schema)


def _resolve(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in node:
        return node
    found: Mapping[str, Any] = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return found


def _allowed(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "anyOf" in node:
        return " or ".join(_allowed(_resolve(choice, schema), schema) for choice in node["anyOf"])
    if "enum" in node:
        *others, last = map(str, node["enum"])
        return f"{', '.join(others)} or {last}"
    match node["type"]:
        case "integer" | "number" as sort:
            return ("whole number" if sort == "integer" else "number") + _range(node)
        case "array" if "prefixItems" in node:
            parts = [_allowed(item, schema) for item in node["prefixItems"]]
            return f"list of {' and '.join(parts)}"
        case "array":
            least = node.get("minItems", 0)
            return f"list of {_allowed(node['items'], schema)}s" + f", {least} or more" * bool(
                least
            )
        case "object":
            return f"mapping of text to {_allowed(node['additionalProperties'], schema)}"
        case other:
            words = {"boolean": "true or false", "string": "text", "null": "null"}
            return words[other]


def _range(node: Mapping[str, Any]) -> str:
    words = {
        "minimum": "from {}",
        "exclusiveMinimum": "over {}",
        "maximum": "to {}",
        "exclusiveMaximum": "under {}",
    }
    parts = [text.format(f"{node[key]:.15g}") for key, text in words.items() if key in node]
    return " " + " ".join(parts) if parts else ""
