"""Renders tools as Python signatures, `name(arg: type, other: type = value) -> type`, with their descriptions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from plait.core import JSON, Artifact, Call, ToolSpec
from plait.loops.tool_descriptions import as_sentence

_WORDS = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool",
    "object": "dict",
    "array": "list",
    "null": "None",
    "any": "Any",
}
_TYPE = re.compile(
    r"[A-Za-z_][A-Za-z0-9_.]{0,40}(?:\[[A-Za-z0-9_., |\[\]]{1,80}\])?(?: \| [A-Za-z_][A-Za-z0-9_]{0,40})*"
)
_SAID_BY_TYPE = re.compile(
    r"(?:an? (?:string|object|number|whole number|list)|true or false|nothing|null|any value)"
    r"|the id of a thing of kind .*|a list with .* each"
)
"""Words for a returned value that only repeat its type."""

_OBVIOUS = re.compile(
    r"(?:(?:a string|a whole number|a number|true or false|a list|an object|any value|null|nothing|with|each|or) ?)+"
)
"""Words that only repeat the type."""
_TYPES = frozenset({"str", "int", "float", "bool", "dict", "list", "tuple", "set", "None", "Any"})


def signature(tool: ToolSpec) -> str:
    """Return `name(arg: type) -> type`; the returned type is included if it is known, or if its description begins with
    one."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    said = []
    for name, schema in properties.items():
        about: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        default = f" = {about['default']!r}" if "default" in about else "" if name in required else " = None"
        said.append(f"{name}: {python_type(about)}{default}")
    kind = tool.result or returned_type(tool)[0]
    return f"{tool.name}({', '.join(said)})" + (f" -> {kind}" if kind else "")


def as_code(call: Call) -> str:
    """Return a call as code, such as `lookup("capital of Brek")`. An input of None is no argument."""
    given = call.input
    if isinstance(given, dict):
        args, named = given.get("args", []), {name: value for name, value in given.items() if name != "args"}
    else:
        args, named = given if isinstance(given, list) else [] if given is None else [given], {}
    said = [*map(_literal, args), *(f"{name}={_literal(value)}" for name, value in named.items())]
    return f"{call.tool}({', '.join(said)})"


def _literal(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def returned_type(tool: ToolSpec) -> tuple[str, str]:
    """Return a tool's returned type (if its description is or begins with one, "dict: the entry") and its
    description."""
    words = " ".join(tool.returns.split())
    head, colon, rest = words.partition(":")
    kind = re.split(r"[\[ .]", head, maxsplit=1)[0]
    if _TYPE.fullmatch(head) and (kind in _TYPES or (colon and " " not in head)):
        return head, rest.strip()
    return "", words


def signature_lines(tools: Sequence[ToolSpec]) -> str:
    """Return a line for each tool: the signature in backticks, its purpose, and a description of what it returns."""
    lines = []
    for tool in tools:
        words = "" if tool.result and _OBVIOUS.fullmatch(tool.returns) else returned_type(tool)[1]
        words = "" if tool.result and _SAID_BY_TYPE.fullmatch(words) else words
        parts = [
            as_sentence(tool.description),
            f"Returns {as_sentence(words[:1].lower() + words[1:])}" if words else "",
        ]
        about = " ".join(part for part in parts if part)
        lines.append(f"`{signature(tool)}`" + (f": {about}" if about else ""))
    return "\n".join(lines)


def python_type(schema: Mapping[str, Any]) -> str:
    """Return a parameter's schema as a type: "str", "list[int]", "Literal['a', 'b']", "Any"."""
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(python_type(part) for part in schema[union]))
    kind = schema.get("type", "object" if "properties" in schema or "$ref" in schema else "any")
    if isinstance(kind, list):
        return " | ".join(_WORDS.get(str(one), str(one)) for one in kind)
    if kind == "string" and schema.get("format") in Artifact.kinds:
        return Artifact.kinds[schema["format"]].__name__
    items = schema.get("items")
    if kind == "array" and isinstance(items, Mapping) and items:
        return f"list[{python_type(items)}]"
    return _WORDS.get(str(kind), str(kind))
