"""Renders tools as Python signatures, `name(arg: type, other: type = value) -> type`, with their descriptions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

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


class PythonArgument(Struct, frozen=True):
    """A parameter of a function. `type` and `default` are as Python writes them; without a default it is "".

    `nullable`: the argument may be None. `inner_type` is the type without `None`: for `str | None`, `str`.
    """

    name: str
    type: str
    inner_type: str
    nullable: bool
    default: str = ""
    description: str = ""


class PythonFunction(Struct, frozen=True):
    """A tool as a Python function, for templates. `result`: its type, "" if unknown; `returns`: the same in words."""

    name: str
    arguments: tuple[PythonArgument, ...] = ()
    result: str = ""
    description: str = ""
    returns: str = ""


def python_function(tool: ToolSpec) -> PythonFunction:
    """Return a tool as a function. The returned type is the known one, or the one with which its description begins."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    arguments = []
    for name, schema in properties.items():
        about: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        default = repr(about["default"]) if "default" in about else "" if name in required else "None"
        types = _python_types(about)
        inner = " | ".join(each for each in types if each != "None")
        said = str(about.get("description", ""))
        arguments.append(PythonArgument(name, " | ".join(types), inner, "None" in types, default, said))
    kind = tool.result or returned_type(tool)[0]
    return PythonFunction(tool.name, tuple(arguments), kind, tool.description, tool.returns)


def signature(tool: ToolSpec) -> str:
    """Return `name(arg: type, other: type = value) -> type`."""
    function = python_function(tool)
    said = (f"{each.name}: {each.type}" + (f" = {each.default}" if each.default else "") for each in function.arguments)
    return f"{tool.name}({', '.join(said)})" + (f" -> {function.result}" if function.result else "")


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
    """Return a tool's returned type (if the description begins with one, "dict: the entry") and its description."""
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


def _python_types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types of a union, such as "str", "list[int]", "Literal['a', 'b']", "Any"; one for another type."""
    if "enum" in schema:
        return [f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"]
    if "const" in schema:
        return [f"Literal[{schema['const']!r}]"]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return list(dict.fromkeys(each for part in schema[union] for each in _python_types(part)))
    kind = schema.get("type", "object" if "properties" in schema or "$ref" in schema else "any")
    if isinstance(kind, list):
        return [_WORDS.get(str(one), str(one)) for one in kind]
    if kind == "string" and schema.get("format") in Artifact.kinds:
        return [Artifact.kinds[schema["format"]].__name__]
    items = schema.get("items")
    if kind == "array" and isinstance(items, Mapping) and items:
        return [f"list[{' | '.join(_python_types(items))}]"]
    return [_WORDS.get(str(kind), str(kind))]
