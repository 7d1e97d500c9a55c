"""Checks that a JSON Schema is one: a keyword with a value of the wrong kind would silently allow any answer.

The rules are those of JSON Schema 2020-12 for the keywords that Plait and providers read. `items` may be a list, as in
earlier drafts. Other keywords are allowed, as the standard requires. (Source: the meta-schemas of 2020-12, 2022-06-10.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plait.core.json_schema import Path, resolve_reference, show_place, show_value

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCHEMA = frozenset(("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"))
_LIST_OF_SCHEMAS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems", "items"))
_SCHEMAS_BY_NAME = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))

Rule: TypeAlias = tuple[Callable[[Any], bool], str]


def find_schema_fault(schema: Any) -> str:
    """Return the first fault of a JSON Schema, as a sentence with its place; "" for a valid one."""
    todo: list[tuple[Path, Any]] = [((), schema)]
    for path, part in todo:  # grows while it is read
        if isinstance(part, bool) and path:
            continue
        if not isinstance(part, dict):
            return f"{show_place('schema', path)} must be an object, not {show_value(part)}."
        for keyword, value in part.items():
            here = (*path, str(keyword))
            if keyword in _LIST_OF_SCHEMAS and isinstance(value, list):
                todo += [((*here, i), each) for i, each in enumerate(value)]
            elif keyword in _SCHEMA:
                todo.append((here, value))
            elif keyword in _SCHEMAS_BY_NAME and isinstance(value, dict):
                todo += [((*here, str(name)), each) for name, each in value.items()]
            fits, wanted = KEYWORD_RULES.get(keyword, NO_RULE)
            if not fits(value):
                return f"{show_place('schema', here)} must be {wanted}, not {show_value(value)}."
            if keyword == "$ref" and resolve_reference(value, schema) is None:
                return f"{show_place('schema', here)} is {show_value(value)}, which is not a part of this schema."
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_type(value: Any) -> bool:
    words = value if isinstance(value, list) else [value]
    return bool(words) and all(isinstance(word, str) and word in TYPES for word in words)


NO_RULE: Rule = (lambda _: True, "")
_NUMBER: Rule = (_is_number, "a number")
_COUNT: Rule = (lambda value: _is_number(value) and value >= 0 and value % 1 == 0, "a whole number from 0")
_OBJECT: Rule = (lambda value: isinstance(value, dict), "an object")
_UNION: Rule = (lambda value: isinstance(value, list) and bool(value), "a list with at least one schema")
KEYWORD_RULES: dict[str, Rule] = {
    "type": (_is_type, f"one of {', '.join(TYPES)}, or a list of them"),
    "required": (
        lambda value: isinstance(value, list | tuple) and all(isinstance(name, str) for name in value),
        "a list of names",
    ),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "prefixItems": (lambda value: isinstance(value, list), "a list"),
    "$ref": (lambda value: isinstance(value, str), "a text"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), _UNION),
    **dict.fromkeys(_SCHEMAS_BY_NAME, _OBJECT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT),
}
