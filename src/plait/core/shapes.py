"""The shape of a JSON value in one line, read from its JSON Schema.

`[{"name": string, "amount": integer (optional)}, ...]` is the shape of a list of objects. Errors and listings show it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from plait.core.things import Thing

LONGEST = 1_000
"""Characters of a shape. A longer one leaves out its innermost objects."""
FEW = 12
"""At most so many choices are listed."""
_DEPTHS = (6, 4, 3, 2, 1)


def shape_of(schema: Any, whole: Mapping[str, Any] | None = None) -> str:
    """The shape of the values that a schema allows. `whole` is the schema that references start from."""
    root = whole if whole is not None else schema if isinstance(schema, Mapping) else {}
    said = ""
    for depth in _DEPTHS:
        said = _shape(schema, root, depth)
        if len(said) <= LONGEST:
            return said
    return said[: LONGEST - 4] + " ..."


def _shape(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if "$ref" in schema:
        return _shape(_target(schema["$ref"], root), root, depth - 1) if depth > 0 else "..."
    if isinstance(choices := schema.get("enum"), list):
        listed = [json.dumps(choice, ensure_ascii=False) for choice in choices[:FEW]]
        return " | ".join(listed + ["..."] * (len(choices) > FEW))
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    for several in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(several)
        if isinstance(parts, list) and parts and (several != "allOf" or len(parts) == 1):
            return " | ".join(dict.fromkeys(_shape(part, root, depth) for part in parts))
    kind = schema.get("type", "object" if "properties" in schema else "any")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_shape({**schema, "type": one}, root, depth) for one in kind))
    if kind == "array":
        return _list(schema, root, depth)
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "string" and schema.get("format") in Thing.kinds:
        return Thing.kinds[schema["format"]].__name__
    if kind == "string":
        most, form = schema.get("maxLength"), schema.get("format")
        bounds = [str(form)] * bool(form) + [f"at most {most} characters"] * bool(most)
        return f"string ({', '.join(bounds)})" if bounds else "string"
    return str(kind)


def _list(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    first = schema.get("prefixItems")
    parts = [_shape(item, root, depth - 1) for item in first] if isinstance(first, list) else []
    items = schema.get("items")
    if depth <= 0 or (not parts and not items):
        return "[...]"
    if isinstance(items, Mapping) and items:
        parts.append(f"{_shape(items, root, depth - 1)}, ...")
    return f"[{', '.join(parts)}]"


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    properties, more = schema.get("properties"), schema.get("additionalProperties")
    named = properties if isinstance(properties, Mapping) else {}
    if not named and (depth <= 0 or not isinstance(more, Mapping) or not more):
        return "{...}" if more is not False or "properties" not in schema else "{}"
    if depth <= 0:
        return "{...}"
    required = schema.get("required", ())
    parts = [
        f"{json.dumps(str(name), ensure_ascii=False)}: {_shape(one, root, depth - 1)}"
        + ("" if name in required else " (optional)")
        for name, one in named.items()
    ]
    if isinstance(more, Mapping) and more and not named:
        parts.append(f"NAME: {_shape(more, root, depth - 1)}")
    return "{" + ", ".join(parts + ["..."] * bool(more)) + "}"


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    """What a reference within the schema leads to; None for nothing."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
