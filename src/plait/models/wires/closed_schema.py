"""The subset of JSON Schema in which Anthropic constrains replies: closed objects without numeric limits. Pure.

Source: Anthropic's documentation, page "Structured outputs", section "JSON Schema limitations" (2025). Every object
needs `additionalProperties: false`. Limits of numbers and of lengths, and recursion, are refused.
"""

from __future__ import annotations

from typing import Any

_DROPPED = frozenset(
    {
        *("$schema", "$id", "examples", "propertyOrdering", "minProperties", "maxProperties"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems"),
    }
)
"""Keywords that only narrow a value. Plait leaves them out, because the reader of the reply checks it anyway."""
_COPIED = frozenset(
    {"type", "enum", "const", "default", "description", "title", "pattern", "format", "required", "$ref"}
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_VALUES = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties")
"""Keywords of which one says what a value may be. Without them it may be anything."""


class _Inexpressible(Exception):
    """The schema allows values that the subset cannot express."""


def close_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema in the accepted subset; None if the subset cannot express it."""
    try:
        _refuse_cycles(schema)
        return _close(schema)
    except _Inexpressible:
        return None


def _close(node: Any) -> dict[str, Any]:
    if not isinstance(node, dict) or not any(key in node for key in _VALUES):
        raise _Inexpressible
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs", "definitions"):
            out[key] = {name: _close(each) for name, each in value.items()}
        elif key == "items":
            out[key] = _close(value)
        elif key in ("anyOf", "oneOf", "allOf"):
            out["anyOf" if key == "oneOf" else key] = [_close(each) for each in value]
        elif key == "minItems":
            if value in (0, 1):
                out[key] = value
        elif key == "format":
            if value in _FORMATS:
                out[key] = value
        elif key in _COPIED:
            out[key] = value
        elif key not in _DROPPED and key != "additionalProperties":
            raise _Inexpressible
    kinds = node.get("type")
    if kinds == "object" or "properties" in node or (isinstance(kinds, list) and "object" in kinds):
        # An object without properties, or with others than these, has names that are not known.
        if node.get("additionalProperties", "properties" not in node):
            raise _Inexpressible
        out["additionalProperties"] = False
    return out


def _refuse_cycles(schema: dict[str, Any]) -> None:
    named = {f"#/{key}/{name}": each for key in ("$defs", "definitions") for name, each in schema.get(key, {}).items()}

    def follow(node: Any, above: tuple[str, ...]) -> None:
        if isinstance(node, list):
            for each in node:
                follow(each, above)
        elif isinstance(node, dict):
            ref = node.get("$ref")
            if isinstance(ref, str):
                if ref in above or ref not in named:
                    raise _Inexpressible
                follow(named[ref], (*above, ref))
            for key, each in node.items():
                if key not in ("$defs", "definitions"):
                    follow(each, above)

    follow(schema, ())
    for name, each in named.items():
        follow(each, (name,))
