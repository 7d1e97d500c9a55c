"""JSON Schemas that a server wrote, for those that must live with them: the loops and the reader of arguments.

A schema is handed to models as it is. Only what breaks the schema's own rules is left out, a reference to a plain type
is written out where it stands (which most models need), and one that is too large gives way to its outline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, Union

from plait.core.errors import UsageError
from plait.tools.signature import Signature

LARGEST = 60_000
"""Characters a tool's schema may have as JSON; of a larger one the names and the types of the parameters are kept."""

DEEPEST = 40
_NAME = re.compile(
    r"(?!.*:(?: |$))(?! )"
    r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\"'`<>|{}\[\]\\]{1,100}(?<! )"
)
"""A parameter's name that a prompt may hold. A parameter with another name is left out."""
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames")
_PLAIN = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None, "object": dict, "array": list}


def sound(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's input as it may be handed to any loop: of type object, with `properties`."""
    found = _sound(dict(schema), schema, 0)
    found = found if isinstance(found, dict) else {}
    found["type"] = "object"
    properties = found.setdefault("properties", {})
    for name in [name for name in properties if not isinstance(properties[name], dict)]:
        properties[name] = {}
    if len(json.dumps(found, ensure_ascii=False)) > LARGEST:
        outline = {name: {"type": one["type"]} if "type" in one else {} for name, one in properties.items()}
        found = {"type": "object", "properties": outline, "required": found.get("required", [])}
        if len(json.dumps(found, ensure_ascii=False)) > LARGEST:
            found = {"type": "object", "properties": {}}
    found["required"] = [name for name in found.get("required", []) if name in found["properties"]]
    if not found["required"]:
        del found["required"]
    return found


def _sound(schema: Any, whole: Mapping[str, Any], depth: int) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict) or depth > DEEPEST:
        return {}
    if "$ref" in schema and (target := _plain_target(schema["$ref"], whole)) is not None:
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LISTS:
            if isinstance(value, list) and value:
                kept[key] = [_sound(each, whole, depth + 1) for each in value]
        elif key in _MAPS:
            if isinstance(value, dict):
                named = {str(name): each for name, each in value.items()}
                fit = named if key != "properties" else {name: named[name] for name in named if _NAME.fullmatch(name)}
                kept[key] = {name: _sound(each, whole, depth + 1) for name, each in fit.items()}
        elif key in _ONE:
            kept[key] = (
                value if key == "additionalProperties" and isinstance(value, bool) else _sound(value, whole, depth + 1)
            )
        elif not _misused(key, value):
            kept[key] = value
    return kept


def _misused(key: str, value: Any) -> bool:
    if key == "enum":
        return not isinstance(value, list) or not value
    if key == "required":
        return not isinstance(value, list) or not all(isinstance(each, str) for each in value)
    if key == "type":
        kinds = value if isinstance(value, list) else [value]
        return not kinds or not all(isinstance(each, str) and each in _PLAIN for each in kinds)
    return key in ("description", "title", "$ref", "format") and not isinstance(value, str)


def _target(reference: Any, whole: Mapping[str, Any]) -> Any:
    """What a reference within the schema leads to, else None."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = whole
    for step in reference[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _plain_target(reference: Any, whole: Mapping[str, Any]) -> dict[str, Any] | None:
    found = _target(reference, whole)
    plain = isinstance(found, dict) and not {"$ref", "properties", *_LISTS, *_ONE} & set(found)
    return found if plain else None


def signature_of(schema: dict[str, Any], description: str, returns: str, result: str) -> Signature:
    """Returns the parameters of a tool that is known by its schema: their input is read as that of any other tool."""
    return Signature(schema, description, returns, result)


def _hint(schema: Any, whole: dict[str, Any], depth: int) -> Any:
    """The type hint that says the same, Any where none does."""
    if not isinstance(schema, dict) or depth > 6:
        return Any
    if "$ref" in schema:
        return _hint(_target(schema["$ref"], whole), whole, depth + 1)
    if "enum" in schema or "const" in schema:
        choices = tuple(schema.get("enum", [schema.get("const")]))
        if not all(each is None or isinstance(each, (str, int)) for each in choices):
            return Any
        some = tuple(each for each in choices if each is not None)
        hint: Any = Literal[some] if some else None
        return hint if len(some) == len(choices) else Union[hint, None]  # noqa: UP007
    for several in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(several)
        if parts and (several != "allOf" or len(parts) == 1):
            return _union([_hint(part, whole, depth + 1) for part in parts])
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        return _union([_hint({**schema, "type": each}, whole, depth + 1) for each in kind])
    if kind == "array" and isinstance(schema.get("items"), dict):
        item = _hint(schema["items"], whole, depth + 1)
        return list if item is Any else list.__class_getitem__(item)
    return _PLAIN.get(kind, Any) if isinstance(kind, str) else Any


def _union(hints: list[Any]) -> Any:
    return Any if any(hint is Any for hint in hints) else Union[tuple(hints)]  # noqa: UP007


def result_of(schema: Any) -> tuple[str, bool]:
    """The Python type of what is returned, "" where it is not known; and whether it is the one entry `result`."""
    if not isinstance(schema, dict):
        return "", False
    properties = schema.get("properties")
    wrapped = isinstance(properties, dict) and set(properties) == {"result"} and schema.get("required") == ["result"]
    inner = properties["result"] if wrapped and isinstance(properties, dict) else schema
    try:
        hint = _hint(inner, schema, 0)
    except (TypeError, UsageError):
        return "", wrapped
    if hint is Any:
        return "", wrapped
    return (hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__origin__") else str(hint)).replace(
        "typing.", ""
    ).replace("NoneType", "None"), wrapped
