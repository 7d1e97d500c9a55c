"""JSON Schemas of MCP servers, repaired for models.

Models get a schema as the server wrote it, with these exceptions. Plait drops what breaks the rules of JSON Schema. It
replaces a reference to a plain type by that type, because most models need this, and gives each array `items`. It
reduces a very large schema to the names and types of its parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, Union

from plait.core.errors import ConfigError
from plait.core.json_schema import alternatives, resolve_reference
from plait.core.schema_check import KEYWORD_RULES, NO_RULE

MAX_CHARACTERS = 60_000
MAX_DEPTH = 40
_PARAMETER_NAME = re.compile(
    r"(?!.*:(?: |$))(?! )"
    r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\"'`<>|{}\[\]\\]{1,100}(?<! )"
)
"""A name that a prompt can hold. Plait drops a parameter with another name."""
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties")
_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames")
_TEXTS = ("description", "title", "$schema", "format")
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None, "object": dict, "array": list}


def repair_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool's input as every loop can use it: of type object, with `properties`."""
    with suppress(ValueError, RecursionError, TypeError):
        schema = json.loads(schema)  # some servers send it as a text
    schema = schema if isinstance(schema, dict) else {}
    repaired: dict[str, Any] = _repair(schema, schema, 0)
    if not repaired.get("properties"):
        repaired = _join_alternatives(repaired)
    repaired["type"] = "object"
    properties = repaired["properties"]
    if _is_too_large(repaired):
        outline = {name: {"type": each["type"]} if "type" in each else {} for name, each in properties.items()}
        repaired = {"type": "object", "properties": outline, "required": repaired.get("required", [])}
        if _is_too_large(repaired):
            repaired = {"type": "object", "properties": {}}
    repaired["required"] = [name for name in repaired.get("required", []) if name in repaired["properties"]]
    if not repaired["required"]:
        del repaired["required"]
    return repaired


def _join_alternatives(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the parameters of all alternatives, because many models take no alternatives here."""
    found = [one for one in alternatives({**schema, "type": None}, schema) if one.get("properties")]
    required = [set(one.get("required", ())) for one in found]
    properties: dict[str, Any] = {}
    for name, each in (entry for one in found for entry in one["properties"].items()):
        known = properties.setdefault(name, each)
        properties[name] = known if known == each else {"anyOf": [*known.get("anyOf", [known]), each]}
    kept = {key: each for key, each in schema.items() if key not in ("$ref", *_LISTS_OF_SCHEMAS)}
    return {**kept, "properties": properties, "required": sorted(set.intersection(*required)) if required else []}


def _is_too_large(schema: dict[str, Any]) -> bool:
    return len(json.dumps(schema, ensure_ascii=False)) > MAX_CHARACTERS


def _repair(schema: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    target = resolve_reference(schema.get("$ref"), root)
    if isinstance(target, dict) and not {"$ref", "properties", *_LISTS_OF_SCHEMAS, *_SCHEMAS} & set(target):
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    repaired: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LISTS_OF_SCHEMAS:
            if isinstance(value, list) and value:
                repaired[key] = [_repair(each, root, depth + 1) for each in value]
        elif key in _MAPS_OF_SCHEMAS:
            if isinstance(value, dict):
                repaired[key] = {
                    str(name): _repair(each, root, depth + 1)
                    for name, each in value.items()
                    if key != "properties" or _PARAMETER_NAME.fullmatch(str(name))
                }
        elif key in _SCHEMAS and not (key == "additionalProperties" and isinstance(value, bool)):
            repaired[key] = _repair(value, root, depth + 1)
        elif key in _TEXTS and not isinstance(value, str):
            continue
        elif KEYWORD_RULES.get(key, NO_RULE)[0](value) and (value or key != "enum"):
            repaired[key] = value
    kind = repaired.get("type")
    if "array" in (kind if isinstance(kind, list) else [kind]) and not {"items", "prefixItems", "$ref"} & set(repaired):
        repaired["items"] = {}  # OpenAI refuses all tools if an array in one of them says nothing of its items
    return repaired


def is_wrapped(schema: Any) -> bool:
    """Return whether an output schema only wraps the result in an object with the entry `result`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and set(properties) == {"result"} and schema.get("required") == ["result"]


def result_type(schema: Any) -> str:
    """Return the Python type that an output schema describes, or "" for a schema without a type."""
    inner = schema["properties"]["result"] if is_wrapped(schema) else schema
    try:
        hint = _type_hint(inner, schema)
    except (TypeError, ConfigError):
        return ""
    if hint is Any:
        return ""
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__origin__") else str(hint)
    return text.replace("typing.", "").replace("NoneType", "None")


def _type_hint(schema: Any, root: Any, depth: int = 0) -> Any:
    """Return the type hint with the same meaning as a schema, or Any."""
    if not isinstance(schema, dict) or depth > 6:
        return Any
    if "$ref" in schema:
        return _type_hint(resolve_reference(schema["$ref"], root), root, depth + 1)
    if "enum" in schema or "const" in schema:
        choices = tuple(schema.get("enum", [schema.get("const")]))
        if not all(each is None or isinstance(each, (str, int)) for each in choices):
            return Any
        some = tuple(each for each in choices if each is not None)
        hint: Any = Literal[some] if some else None
        return hint if len(some) == len(choices) else Union[hint, None]  # noqa: UP007
    for key in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(key)
        if parts and (key != "allOf" or len(parts) == 1):
            return _union([_type_hint(part, root, depth + 1) for part in parts])
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        return _union([_type_hint({**schema, "type": each}, root, depth + 1) for each in kind])
    if kind == "array" and isinstance(schema.get("items"), dict):
        item = _type_hint(schema["items"], root, depth + 1)
        return list if item is Any else list.__class_getitem__(item)
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _union(hints: list[Any]) -> Any:
    return Any if any(hint is Any for hint in hints) else Union[tuple(hints)]  # noqa: UP007
