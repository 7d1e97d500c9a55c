"""Stand-ins of tools that only a file tells of: each takes what it is told to take, and answers with one fixed text.

A tool of the file has `name` (or `api_name`), `description` (or `api_description`), and perhaps `parameters`: a JSON
Schema, or names with a `type` each and a list `required` beside them, as Seal-Tools has. MCP's `inputSchema` and the
`function` of a chat-completions tool are read as well. One without parameters may be told in words what is wanted.
"""

from __future__ import annotations

import re
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from plait.core.errors import UsageError
from plait.lab.base import digest
from plait.lab.loaders import files
from plait.tools.kinds import ANYTHING, Kind, plain_kind
from plait.tools.signature import Parameter, Signature
from plait.tools.tool import Tool

_TYPES: dict[str, Any] = {
    **dict.fromkeys(("str", "string", "text"), str),
    **dict.fromkeys(("int", "integer"), int),
    **dict.fromkeys(("float", "number", "double"), float),
    **dict.fromkeys(("bool", "boolean"), bool),
    **dict.fromkeys(("list", "array"), list),
    **dict.fromkeys(("dict", "object"), dict),
}
_WORDS = Parameter("request", plain_kind(str) or ANYTHING, "What is wanted, in words.", "")


class Stub(Tool, frozen=True, dict=True, kw_only=True):
    """A tool whose parameters are known without a function to read them from."""

    known: Signature

    @cached_property
    def signature(self) -> Signature:
        return self.known


class Kept(Struct, frozen=True, dict=True):
    """The tools of a file."""

    path: Path
    stamp: tuple[int, int]
    tools: tuple[Stub, ...]

    @cached_property
    def mark(self) -> str:
        """What stands for these tools."""
        return digest([[tool.name, tool.description, tool.known.schema] for tool in self.tools])

    @property
    def word(self) -> str:
        """The word that finds them again, from anywhere on this machine."""
        return f"lab:stubs,{self.mark},{self.path}"


_KEPT: dict[Path, Kept] = {}


def kept(path: Path) -> Kept:
    """The tools of a file, read once in a process as long as it does not change. Raises `UsageError`."""
    now, known = files.stamp(path), _KEPT.get(path)
    if known is None or known.stamp != now:
        entries = files.records(path)
        made = [_made(entry) for entry in entries]
        files.distinct((entry, tool.name) for entry, tool in zip(entries, made, strict=True))
        known = _KEPT[path] = Kept(path, now, tuple(made))
    return known


def tools(settings: str) -> tuple[Tool, ...]:
    """The tools of `MARK,FILE`. Raises `UsageError` where they are not the same any more."""
    mark, _, name = settings.partition(",")
    known = kept(files.found(name))
    if known.mark != mark:
        raise UsageError(
            f"The tools of {known.path.name} are not those that the run was begun with.",
            hint="The file was changed: put the old one back, or begin anew.",
        )
    return known.tools


def fitting(name: str) -> str:
    """A name as tools may have it: letters, digits and `_.-`, at most 64, a letter first."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name.strip())[:64].strip("_") or "tool"
    return plain if plain[0].isalpha() else f"_{plain}"[:64]


def _made(entry: files.Entry) -> Stub:
    function = entry.value.get("function")
    value = function if isinstance(function, dict) else entry.value
    inner = files.Entry(entry.place, entry.number, value)
    name = fitting(inner.text("name", "api_name"))
    said = value.get("description", value.get("api_description", ""))
    schema = value.get("parameters", value.get("inputSchema", value.get("input_schema")))
    if not isinstance(said, str) or not isinstance(schema, dict | None):
        raise entry.wrong("the tool's description or parameters can't be read.", "A text, and an object.")
    parameters = (_WORDS,) if schema is None else _parameters(inner, schema)
    signature = Signature(parameters, said, "", None, {})
    return Stub(
        function=partial(_done, name),
        name=name,
        description=said.strip() or name,
        returns="a confirmation",
        read_only=True,
        inline=True,
        known=signature,
    )


def _parameters(entry: files.Entry, schema: dict[str, Any]) -> tuple[Parameter, ...]:
    properties = schema.get("properties") if schema.get("type") == "object" else schema
    required = schema.get("required") if schema.get("type") == "object" else entry.value.get("required")
    if not isinstance(properties, dict | None) or not isinstance(required, list | None):
        raise entry.wrong("'parameters' can't be read.", "It is a JSON Schema, or names with a type each.")
    found = []
    for name, told in (properties or {}).items():
        told = told if isinstance(told, dict) else {"type": str(told)}
        needed = required is not None and name in required
        kind = _kind(told.get("type"))
        said = str(told.get("description", ""))
        found.append(Parameter(name, kind, said) if needed else Parameter(name, kind, said, None))
    return tuple(sorted(found, key=lambda parameter: not parameter.required))


def _kind(named: Any) -> Kind:
    plain = _TYPES.get(str(named).casefold())
    return (plain_kind(plain) if plain is not None else None) or ANYTHING


def _done(name: str, *args: Any, **kwargs: Any) -> str:
    return f"{name}: done."
