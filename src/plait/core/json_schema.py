"""Describes a JSON Schema: its alternatives and types, its shape in one line, and in words.

`root` is always the schema at which references (`$ref`) start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from plait.core.artifacts import Artifact
from plait.core.text import cut_text

Schema: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str | int, ...]
"""The place of a value inside another one."""

LONGEST = 1_000
"""Maximum number of characters of a shape. A longer one omits its innermost objects."""
FEW = 12
"""Maximum number of choices that a shape lists."""
MOST = 30
"""Maximum number of alternatives in a union. A larger union allows any value here."""

_DEPTHS = (6, 4, 3, 2, 1)
_UNIONS = ("anyOf", "oneOf", "allOf")
_WORDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


# -- what a schema allows


def alternatives(schema: Any, root: Schema) -> list[Schema]:
    """Return the schemas that a value may fit: without references and unions, each with at most one type."""
    if isinstance(schema, dict) and isinstance(schema.get("type"), str):
        return [schema]
    found = list(islice(_alternatives(schema, root, 0), MOST + 1))
    return found if len(found) <= MOST else [{}]


def _alternatives(schema: Any, root: Schema, depth: int) -> Iterator[Schema]:
    if not isinstance(schema, dict) or depth > 10:
        yield {}
        return
    if isinstance(schema.get("type"), str):
        yield schema
        return
    if "$ref" in schema:
        yield from _alternatives(resolve_reference(schema["$ref"], root), root, depth + 1)
        return
    for union in _UNIONS:
        parts = schema.get(union)
        if isinstance(parts, list) and parts and (union != "allOf" or len(parts) == 1):
            for part in parts:
                yield from _alternatives(part, root, depth + 1)
            return
    if isinstance(schema.get("type"), list) and choices_of(schema) is None:
        yield from ({**schema, "type": one} for one in schema["type"])
    else:
        yield schema


def types_of(schema: Any, root: Schema) -> set[str]:
    """Return the JSON types that a schema allows; "any" if it does not say."""
    found = alternatives(schema, root)
    return {"string" if "type" not in one and choices_of(one) is not None else type_of(one) for one in found}


def type_of(schema: Schema) -> str:
    """Return the type of one alternative; "any" if it has none."""
    return str(schema.get("type", "object" if "properties" in schema else "any"))


def choices_of(schema: Schema) -> list[Any] | None:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    return choices if isinstance(choices, list) else None


def resolve_reference(reference: Any, root: Schema) -> Any:
    """Return the target of a reference, or None."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def drop_nulls(value: Any, schema: Any, root: Schema | None = None) -> Any:
    """Return a value without the nulls of optional properties that may not be null: strict endpoints require all."""
    root = root if root is not None else schema
    kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
    fitting = [one for one in alternatives(schema, root) if type_of(one) == kind] if kind else []
    if len(fitting) != 1:
        return value
    if kind == "array":
        return [drop_nulls(each, fitting[0].get("items", {}), root) for each in value]
    known, required = fitting[0].get("properties", {}), fitting[0].get("required", ())
    return {
        name: drop_nulls(each, known.get(name, {}), root)
        for name, each in value.items()
        if each is not None or name in required or types_of(known.get(name, {}), root) & {"null", "any"}
    }


# -- a schema in words


def shape_of(schema: Any, root: Schema | None = None) -> str:
    """Describe what a schema allows in one line, such as `{"name": string, "amount": integer (optional)}`."""
    root = root if root is not None else schema if isinstance(schema, dict) else {}
    said = ""
    for depth in _DEPTHS:
        said = _shape(schema, root, depth, [LONGEST // 2])
        if len(said) <= LONGEST:
            return said
    return said[: LONGEST - 4] + " ..."


def _shape(schema: Any, root: Schema, depth: int, left: list[int]) -> str:
    """Describe a schema. `left` counts how many more schemas can be described: references can multiply them."""
    return " | ".join(dict.fromkeys(_shape_of_one(one, root, depth, left) for one in alternatives(schema, root)))


def _shape_of_one(schema: Schema, root: Schema, depth: int, left: list[int]) -> str:
    left[0] -= 1
    if left[0] < 0:
        return "..."
    if (choices := choices_of(schema)) is not None:
        listed = [json.dumps(choice, ensure_ascii=False) for choice in choices[:FEW]]
        return " | ".join(listed + ["..."] * (len(choices) > FEW))
    kind = type_of(schema)
    if kind == "array":
        first, items = schema.get("prefixItems"), schema.get("items")
        parts = [_shape(item, root, depth - 1, left) for item in first] if isinstance(first, list) else []
        if depth <= 0 or (not parts and not items):
            return "[...]"
        if isinstance(items, dict) and items:
            parts.append(f"{_shape(items, root, depth - 1, left)}, ...")
        return f"[{', '.join(parts)}]"
    if kind == "object":
        return _shape_of_object(schema, root, depth, left)
    if kind == "string":
        max_length, form = schema.get("maxLength"), schema.get("format")
        if form in Artifact.kinds:
            return Artifact.kinds[form].__name__
        bounds = [str(form)] * bool(form) + [f"at most {max_length} characters"] * bool(max_length)
        return f"string ({', '.join(bounds)})" if bounds else "string"
    return kind


def _shape_of_object(schema: Schema, root: Schema, depth: int, left: list[int]) -> str:
    properties, more = schema.get("properties"), schema.get("additionalProperties")
    named = properties if isinstance(properties, dict) else {}
    if not named and (depth <= 0 or not isinstance(more, dict) or not more):
        return "{...}" if more is not False or "properties" not in schema else "{}"
    if depth <= 0:
        return "{...}"
    required = schema.get("required", ())
    parts = [
        f"{json.dumps(str(name), ensure_ascii=False)}: {_shape(one, root, depth - 1, left)}"
        + ("" if name in required else " (optional)")
        for name, one in named.items()
    ]
    if isinstance(more, dict) and more and not named:
        parts.append(f"NAME: {_shape(more, root, depth - 1, left)}")
    return "{" + ", ".join(parts + ["..."] * bool(more)) + "}"


def words_of(schema: Any, root: Schema) -> str:
    """Describe a schema in a sentence: "a list with a whole number each", "one of 'km', 'mile'"."""
    return cut_text(_words(schema, root, 4, [LONGEST // 10]), LONGEST)


def _words(schema: Any, root: Schema, depth: int, left: list[int]) -> str:
    found = dict.fromkeys(_words_of_one(one, root, depth, left) for one in alternatives(schema, root))
    return " or ".join(sorted(found, key=lambda words: words == "null"))


def _words_of_one(schema: Schema, root: Schema, depth: int, left: list[int]) -> str:
    left[0] -= 1
    if (choices := choices_of(schema)) is not None:
        return ("one of " if len(choices) > 1 else "") + ", ".join(map(repr, choices))
    kind, form = type_of(schema), schema.get("format")
    words = _WORDS.get(kind, "any value")
    if kind == "string" and "maxLength" in schema:
        return f"a string of at most {schema['maxLength']} characters"
    if kind == "string" and form:
        return f"the id of a thing of kind {form}, such as {form}-1" if form in Artifact.kinds else f"a string ({form})"
    inner = schema.get("items" if kind == "array" else "additionalProperties")
    if kind in ("array", "object") and isinstance(inner, dict) and inner and depth > 0 and left[0] > 0:
        return f"{words} with {_words(inner, root, depth - 1, left)} each"
    return words


# -- a value and its place in an error


def show_place(name: str, path: Path) -> str:
    """Name the place of a value: `items[0].amount`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{cut_text(str(part), 40)}" for part in path)
    return cut_text(name, 60) + "".join(parts)


def show_value(value: Any) -> str:
    """Show a value in an error: its type and its beginning, in one line."""
    if isinstance(value, str):
        return repr(cut_text(value, 60))
    if value is None:
        return "null"
    try:
        text = repr(value)
    except Exception:  # nested too deeply, or an int with too many digits to print
        return f"a {type(value).__name__}"
    names = {dict: "object", list: "list", tuple: "list", bool: "boolean", int: "number", float: "number"}
    return f"the {names.get(type(value), 'value')} {cut_text(text, 60)}"
