"""Describes tools for a model, with their inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import structs

from plait.core import Call, Effects, LoopContext, ToolSpec, act
from plait.core.text import clean
from plait.loops.escape import Escape, escape_of

T = TypeVar("T")
DescribeTools: TypeAlias = Callable[[tuple[ToolSpec, ...]], str]


class _WithTools(Generic[T]):
    """A cache key for values with tools, which are not hashable: it compares their names."""

    __slots__ = ("_names", "value")

    def __init__(self, value: T, tools: tuple[ToolSpec, ...]) -> None:
        self.value = value
        self._names = tuple(map(attrgetter("name"), tools))

    def __hash__(self) -> int:
        return hash(self._names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WithTools) and self._names == other._names and self.value == other.value


def _once(describe: DescribeTools) -> DescribeTools:
    """Cache a description of tools across runs."""

    @lru_cache(maxsize=64)
    def describe_once(key: _WithTools[tuple[ToolSpec, ...]]) -> str:
        return describe(key.value)

    return wraps(describe)(lambda tools: describe_once(_WithTools(tools, tools)))


def type_word(schema: Mapping[str, Any]) -> str:
    """Return a parameter's type in a few words: "number", "string of at most 40 characters", "list of string", "one of
    "a", "b"", "any"."""
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(type_word(part) for part in schema[union]))
    kind = schema.get("type", "object" if "properties" in schema or "$ref" in schema else "any")
    if isinstance(kind, list):
        return " or ".join(str(one) for one in kind)
    items = schema.get("items")
    if kind == "array":
        return f"list of {type_word(items)}" if isinstance(items, Mapping) and items else "list"
    if kind == "string" and "maxLength" in schema:
        return f"string of at most {schema['maxLength']} characters"
    return str(kind)


def argument_types(tool: ToolSpec) -> dict[str, str]:
    """Return the tool's parameters: name to type in words, with "(optional)" if it may be omitted."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    return {
        name: type_word(schema) + ("" if name in required else " (optional)")
        for name, schema in properties.items()
        if isinstance(schema, Mapping)
    }


def input_words(tool: ToolSpec) -> str:
    """Describe a tool's input for a prompt: `none`, `the city's name (string)`, or JSON of names and descriptions. A
    single argument has no name here, because small models would write it into the input."""
    named = argument_types(tool)
    if not named:
        return "none"
    said = {name: describe_parameter(tool, name) for name in named}
    if len(named) == 1:
        ((name, kind),) = named.items()
        optional = ", optional" if "(optional)" in kind else ""
        return f"{said[name] or f'the {name}'} ({kind.removesuffix(' (optional)')}{optional})"
    told = {name: f"{kind}: {said[name]}" if said[name] else kind for name, kind in named.items()}
    return "an object " + json.dumps(told, ensure_ascii=False)


def flat_description(tool: ToolSpec, name: str) -> str:
    """Return a parameter's description on one line; "" if it has none."""
    return " ".join(str(tool.parameters["properties"][name].get("description", "")).split())


def describe_parameter(tool: ToolSpec, name: str) -> str:
    """Return a parameter's description for use in a sentence; "" if it has none."""
    flat = flat_description(tool, name).rstrip(".")
    return flat[:1].lower() + flat[1:] if flat[1:2].islower() else flat


def as_sentence(text: str) -> str:
    """Return a description on one line, with a full stop."""
    flat = " ".join(text.split())
    return flat if not flat or flat[-1] in ".!?:;" else flat + "."


def describe_tool(tool: ToolSpec) -> str:
    """Describe a tool's purpose, input and result: `Counts people. Input: the city. Returns: ...`."""
    parts = [as_sentence(tool.description), f"Input: {input_words(tool)}."]
    parts += [f"Returns: {as_sentence(tool.returns)}"] if tool.returns else []
    return " ".join(filter(None, parts))


@_once
def tool_lines(tools: tuple[ToolSpec, ...]) -> str:
    """Return a line for each tool: its name and `describe_tool`."""
    return "\n".join(f"{tool.name}: {describe_tool(tool)}" for tool in tools)


@_once
def numbered_lines(tools: tuple[ToolSpec, ...]) -> str:
    """Return a line for each tool: `(1) Name[what goes in]: what for.`"""
    lines = []
    for number, tool in enumerate(tools, 1):
        named = argument_types(tool)
        inside = "" if not named else next(iter(named)) if len(named) == 1 else json.dumps(named, ensure_ascii=False)
        returns = f" Returns: {as_sentence(tool.returns)}" if tool.returns else ""
        lines.append(f"({number}) {tool.name}[{inside}]: {as_sentence(tool.description)}{returns}")
    return "\n".join(lines)


@_once
def tool_entries(tools: tuple[ToolSpec, ...]) -> str:
    """Return an entry for each tool: name and explanation, then an `_input_` and an `_output_` line."""
    return "\n".join(
        f"{tool.name}: {as_sentence(tool.description)}\n"
        f"  _input_: {input_words(tool)}\n"
        f"  _output_: {' '.join(tool.returns.split()) or 'text'}"
        for tool in tools
    )


def are_exclusive(tools: Iterable[ToolSpec], one: str, other: str) -> bool:
    """Return whether one of the two tools names the other as doing the same job."""
    shut = {tool.name: tool.excludes for tool in tools if tool.name in (one, other)}
    return one != other and (other in shut.get(one, ()) or one in shut.get(other, ()))


_WORDS = ("description", "title")


def with_clean_tools(context: LoopContext) -> LoopContext:
    """Return the context with tool descriptions without labels, special tokens, escape codes, invisible characters."""
    return _with_clean_tools(_WithTools(context, context.known_tools))


@lru_cache(maxsize=64)
def _with_clean_tools(key: _WithTools[LoopContext]) -> LoopContext:
    context = key.value
    escape = escape_of(structs.replace(context, tools=(), others=()))
    return structs.replace(context, tools=_cleaned(context.tools, escape), others=_cleaned(context.others, escape))


def _cleaned(tools: Iterable[ToolSpec], escape: Escape) -> tuple[ToolSpec, ...]:
    return tuple(_clean(tool, escape) for tool in tools)


def _clean(tool: ToolSpec, escape: Escape) -> ToolSpec:
    def words(text: str) -> str:
        return escape(clean(text))

    def value(text: str) -> str:
        return escape.tokens(clean(text))

    cleaned = structs.replace(
        tool,
        description=words(tool.description),
        returns=words(tool.returns),
        result=value(tool.result),
        parameters=_mapped(tool.parameters, words, value),
    )
    return tool if cleaned == tool else cleaned


def _mapped(given: Any, words: Callable[[str], str], value: Callable[[str], str], key: str = "") -> Any:
    """Return a schema with each text changed: those for readers by `words`, the others by `value`."""
    if isinstance(given, str):
        return words(given) if key in _WORDS else value(given)
    if isinstance(given, dict):
        return {name: _mapped(each, words, value, str(name)) for name, each in given.items()}
    if isinstance(given, list | tuple):
        return [_mapped(each, words, value) for each in given]
    return given


# -- the tools that a run's own searches found

_FOUND_LINE = re.compile(r"^`([A-Za-z_][\w.-]*)(?:\(|` with )", re.MULTILINE)
"""The beginning of a tool's line in the output of the search tool, and in a note below a result that was too long."""
_NO_TOOL = re.compile(r"uses '([^'\n]{1,100})', which is no tool")
MOST_SEARCHED = 3
"""Maximum number of unknown names of one plan that are searched."""


def offered_tools(context: LoopContext, seen: Iterable[str]) -> tuple[ToolSpec, ...]:
    """Return the tools shown, then those that the observations in `seen` describe, in the order of their appearance. It
    depends only on the observations, so a replay offers the same tools."""
    return (*context.tools, *tools_found(context.others, seen)) if context.others else context.tools


def tools_found(tools: Iterable[ToolSpec], seen: Iterable[str]) -> tuple[ToolSpec, ...]:
    """Return those of the tools that results of the search tool describe, in the order of their appearance."""
    named = {tool.name: tool for tool in tools}
    names = dict.fromkeys(name for text in seen if "`" in text for name in _FOUND_LINE.findall(text))
    return tuple(named[name] for name in names if name in named)


def add_search_results(context: LoopContext, complaint: str) -> Effects[str]:
    """Return a complaint about a plan, with search results for the names in it that no tool has."""
    names = tuple(dict.fromkeys(_NO_TOOL.findall(complaint)))[:MOST_SEARCHED] if context.search else ()
    if names:
        tool = context.tool(context.search)
        (argument,) = list(tool.parameters["properties"])[:1] if tool is not None else ("description",)
        seen = yield from act(*(Call(context.search, {argument: name}) for name in names))
        lines = dict.fromkeys(line for each in seen if each.ok for line in each.text.splitlines())
        complaint += "".join(["\nWhat the search finds for that:", *(f"\n{line}" for line in lines)]) if lines else ""
    return complaint
