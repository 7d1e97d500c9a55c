"""Stand-ins for tools that a file describes. Each takes its declared arguments and returns one fixed text.

A tool of the file has `name` (or `api_name`), `description` (or `api_description`), and optional `parameters`: a JSON
Schema, or names with a `type` each and a list `required` beside them, as Seal-Tools has. MCP's `inputSchema` and the
`function` of a chat-completions tool are read as well. A tool without parameters takes a request in words.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from plait.core.errors import ConfigError
from plait.lab.records import FileRecord, check_distinct, file_stamp, find_file, read_records
from plait.lab.tasks import digest
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


class StubTool(Tool, frozen=True, dict=True, kw_only=True):
    """A tool whose parameters come from a file and not from a function."""

    known: Signature

    @cached_property
    def signature(self) -> Signature:
        return self.known


def load_stubs(path: Path) -> tuple[StubTool, ...]:
    """Load the tools of a file, once in a process while the file does not change. Raises `ConfigError`."""
    return _load_stubs(path, file_stamp(path))


def stubs_word(path: Path) -> str:
    """Return the word that finds the tools of a file again, from anywhere on this machine."""
    return f"lab:stubs,{_digest(load_stubs(path))},{path}"


@lru_cache(maxsize=16)
def _load_stubs(path: Path, stamp: tuple[int, int]) -> tuple[StubTool, ...]:
    entries = read_records(path)
    made = tuple(_make_stub(entry) for entry in entries)
    check_distinct((entry, tool.name) for entry, tool in zip(entries, made, strict=True))
    return made


def _digest(tools: tuple[StubTool, ...]) -> str:
    return digest([[tool.name, tool.description, tool.known.schema] for tool in tools])


def fit_tool_name(name: str) -> str:
    """Return a name that a tool may have: letters, digits and `_.-`, at most 64, a letter or `_` first."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name.strip())[:64].strip("_") or "tool"
    return plain if plain[0].isalpha() else f"_{plain}"[:64]


def find_stub_tools(settings: str) -> tuple[Tool, ...]:
    mark, _, name = settings.partition(",")
    path = find_file(name)
    known = load_stubs(path)
    if _digest(known) != mark:
        hint = "The file has changed. Restore the old file, or start a new run."
        raise ConfigError(f"The tools of {path.name} are not those that the run started with.", hint=hint)
    return known


def _make_stub(entry: FileRecord) -> StubTool:
    function = entry.value.get("function")
    value = function if isinstance(function, dict) else entry.value
    inner = FileRecord(entry.place, entry.number, value)
    name = fit_tool_name(inner.text("name", "api_name"))
    description = value.get("description", value.get("api_description", ""))
    schema = value.get("parameters", value.get("inputSchema", value.get("input_schema")))
    if not isinstance(description, str) or not isinstance(schema, dict | None):
        raise entry.error("the tool's description or parameters can't be read.", "A text, and an object.")
    needed: dict[str, Any] = {}
    optional: dict[str, Any] = {} if schema is not None else _WORDS
    if schema is not None:
        is_schema = schema.get("type") == "object"
        properties = schema.get("properties") if is_schema else schema
        required = schema.get("required") if is_schema else value.get("required")
        if not isinstance(properties, dict | None) or not isinstance(required, list | None):
            raise entry.error("'parameters' can't be read.", "It is a JSON Schema, or names with a type each.")
        for parameter, described in (properties or {}).items():
            described = described if isinstance(described, dict) else {"type": str(described)}
            kind = _TYPES.get(str(described.get("type")).casefold())
            one = {"type": kind} if kind else {}
            one |= {"description": str(described["description"])} if described.get("description") else {}
            if required is not None and parameter in required:
                needed[parameter] = one
            else:
                optional[parameter] = {**one, "default": None}
    known: dict[str, Any] = {"type": "object", "properties": needed | optional}
    known |= {"required": list(needed)} if needed else {}
    signature = Signature({**known, "additionalProperties": False}, description)
    return StubTool(
        function=partial(_run_stub, name),
        name=name,
        description=description.strip() or name,
        returns="a confirmation",
        read_only=True,
        inline=True,
        known=signature,
    )


def _run_stub(name: str, *args: Any, **kwargs: Any) -> str:
    return f"{name}: done."
