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
from plait.tools.signature import Signature
from plait.tools.tool import Tool

_TYPES = {
    **dict.fromkeys(("str", "string", "text"), "string"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("float", "number", "double"), "number"),
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("list", "array"), "array"),
    **dict.fromkeys(("dict", "object"), "object"),
}
_WORDS = {"request": {"type": "string", "description": "What is wanted, in words.", "default": ""}}


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
    properties, required = (_WORDS, []) if schema is None else _parameters(inner, schema)
    known: dict[str, Any] = {"type": "object", "properties": properties}
    known |= {"required": required} if required else {}
    signature = Signature({**known, "additionalProperties": False}, said)
    return Stub(
        function=partial(_done, name),
        name=name,
        description=said.strip() or name,
        returns="a confirmation",
        read_only=True,
        inline=True,
        known=signature,
    )


def _parameters(entry: files.Entry, schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the schema of each parameter, the required ones first, and the names of these."""
    properties = schema.get("properties") if schema.get("type") == "object" else schema
    required = schema.get("required") if schema.get("type") == "object" else entry.value.get("required")
    if not isinstance(properties, dict | None) or not isinstance(required, list | None):
        raise entry.wrong("'parameters' can't be read.", "It is a JSON Schema, or names with a type each.")
    needed: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    for name, told in (properties or {}).items():
        told = told if isinstance(told, dict) else {"type": str(told)}
        kind = _TYPES.get(str(told.get("type")).casefold())
        schema_of_one = {"type": kind} if kind else {}
        schema_of_one |= {"description": str(told["description"])} if told.get("description") else {}
        if required is not None and name in required:
            needed[name] = schema_of_one
        else:
            optional[name] = {**schema_of_one, "default": None}
    return needed | optional, list(needed)


def _done(name: str, *args: Any, **kwargs: Any) -> str:
    return f"{name}: done."
