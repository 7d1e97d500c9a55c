"""Whether a planned call can be made: its tool exists, and its input fits the tool's parameters.

The check reads nothing but the tools' JSON Schemas, so a loop can ask before anything runs, and a replay asks the same.
It reports only what the tool is certain to reject. The types of a tool may reject more when it is called.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from plait.core.arguments import is_no_input, read_input, read_structure
from plait.core.messages import JSON
from plait.core.shapes import shape_of
from plait.core.tools import ToolSpec

IsOpen: TypeAlias = Callable[[str], bool]
"""Whether a text has a reference to a result in it, so that its value is not known yet."""

FEW = 12
"""At most so many tools are listed in full."""

MOST = 8
"""At most so many faults of one input are listed."""

_WORDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
_WORDS |= {"array": "a list", "object": "an object"}
_YES_OR_NO = ("true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n")


def find_call_problem(tool: str, given: JSON, tools: Mapping[str, ToolSpec], is_open: IsOpen) -> str:
    """Why a call cannot be made, as the rest of a sentence that begins with the step's name; "" if it can."""
    spec = tools.get(tool)
    if spec is None:
        return f"uses '{tool}', which is no tool. {_there_are(tool, tools)}"
    problem = find_input_problem(spec, given, is_open)
    return f"gives {tool} what it cannot take: {problem}. {_takes(spec)}" if problem else ""


def find_input_problem(tool: ToolSpec, given: JSON, is_open: IsOpen) -> str:
    """Why a tool cannot take an input, in words; "" if it can, or if that is not certain."""
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    return "; ".join(islice(_problems(tool.parameters, properties, given, is_open), MOST))


def _problems(schema: Mapping[str, Any], properties: Mapping[str, Any], given: JSON, is_open: IsOpen) -> Iterator[str]:
    required = [name for name in schema.get("required", ()) if name in properties]
    loose = bool(schema.get("additionalProperties", not properties or "patternProperties" in schema))
    one = [*required, *properties][0] if len(required) == 1 or len(properties) == 1 else ""
    if isinstance(given, str):
        read = read_structure(given)
        read = read_input(given, schema, closed=True).value if read is None else read
        by_name = isinstance(read, dict) and bool(read) and set(required) <= read.keys() <= properties.keys()
        if by_name or (isinstance(read, list | dict) and len(required) > 1):
            yield from _problems(schema, properties, read, is_open)
            return
        if is_open(given) or (not required and is_no_input(given)):
            return
    if not properties:
        if not loose and not is_no_input(given):
            yield "it takes no input"
    elif given is None or given in ({}, []):
        taken = "null" if given is None else "object" if given == {} else "array"
        if not (one and _types(properties[one]) & {taken, "any"}):
            yield from _missing(required)
    elif isinstance(given, Mapping):
        if not (one and _types(properties[one]) & {"object", "any"}):
            yield from _by_name(properties, required, loose, given, is_open)
    elif isinstance(given, list):
        if not (one and _types(properties[one]) & {"array", "any"}):
            yield from _by_place(properties, required, given, is_open)
    elif len(required) > 1:
        yield f"it needs {', '.join(required)}, but one value is given"
    else:
        yield from _value(one or next(iter(properties)), properties[one or next(iter(properties))], given, is_open)


def _by_name(
    properties: Mapping[str, Any], required: list[str], loose: bool, given: Mapping[str, Any], is_open: IsOpen
) -> Iterator[str]:
    alike = {_fold(name): name for name in properties}
    placed = {name if name in properties else alike.get(_fold(name), ""): value for name, value in given.items()}
    extra = [str(name) for name in given if name not in properties and _fold(name) not in alike]
    if extra and not loose:
        yield f"it has no parameter {', '.join(map(repr, extra[:5]))}"
    yield from _missing([name for name in required if name not in placed])
    for name, value in placed.items():
        if name:
            yield from _value(name, properties[name], value, is_open)


def _by_place(properties: Mapping[str, Any], required: list[str], given: list[Any], is_open: IsOpen) -> Iterator[str]:
    names = list(properties)
    spread = bool(_types(properties[names[-1]]) & {"array", "any"})  # it may take all that is left
    if len(given) > len(names) and not spread:
        yield f"it takes at most {len(names)} values, but {len(given)} are given"
    yield from _missing([name for name in required if name in names[len(given) :]])
    for name, value in zip(names[:-1] if spread else names, given, strict=False):
        yield from _value(name, properties[name], value, is_open)


def _missing(names: Collection[str]) -> Iterator[str]:
    if names:
        yield f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing"


def _value(name: str, schema: Any, value: JSON, is_open: IsOpen) -> Iterator[str]:
    """Why a parameter cannot have a value."""
    if not isinstance(schema, Mapping) or _has_open(value, is_open):
        return
    choices = schema.get("enum")
    if isinstance(choices, list):
        if str(value).strip().casefold() not in {str(choice).casefold() for choice in choices}:
            yield f"{name} must be one of {', '.join(map(str, choices[:FEW]))}, not {_shown(value)}"
        return
    types = _types(schema)
    if not types <= _WORDS.keys() | {"null"}:
        return
    if any(_fits(kind, value) for kind in types):
        yield from _out_of_bounds(name, schema, value)
        return
    wanted = " or ".join(_WORDS[kind] for kind in _WORDS if kind in types)
    yield f"{name} must be {wanted}, not {_shown(value)}"


def _fits(kind: str, value: JSON) -> bool:
    """A value is of a kind, or can be read as such."""
    if kind == "null":
        return value is None
    if kind in ("array", "object"):
        return isinstance(value, list | Mapping) or (isinstance(value, str) and read_structure(value) is not None)
    if kind == "string":
        return isinstance(value, str | int | float)
    if kind == "boolean":
        return isinstance(value, bool | int) or (isinstance(value, str) and value.strip().lower() in _YES_OR_NO)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        number = float(value.strip().replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return isinstance(value, int)  # a whole number with more digits than a float has
    return kind == "number" or number - number != 0 or number.is_integer()


def _out_of_bounds(name: str, schema: Mapping[str, Any], value: JSON) -> Iterator[str]:
    most, least = schema.get("maxLength"), schema.get("minLength")
    if isinstance(value, str) and schema.get("type") == "string":
        if isinstance(most, int) and len(value) > most:
            yield f"{name} has {len(value):,} characters, but at most {most:,} are allowed"
        if isinstance(least, int) and len(value) < least:
            yield f"{name} has {len(value):,} characters, but at least {least:,} are needed"
    if isinstance(value, int | float) and not isinstance(value, bool):
        for key, too_far, words in (
            ("minimum", float.__lt__, "at least"),
            ("maximum", float.__gt__, "at most"),
            ("exclusiveMinimum", float.__le__, "more than"),
            ("exclusiveMaximum", float.__ge__, "less than"),
        ):
            bound = schema.get(key)
            if isinstance(bound, int | float) and abs(value) < 1e300 and too_far(float(value), float(bound)):
                yield f"{name} must be {words} {bound}, not {value}"


def _types(schema: Any) -> set[str]:
    """The JSON types that a parameter may have; "any" where its schema does not say."""
    if not isinstance(schema, Mapping):
        return {"any"}
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            # Bounds within a union are the tool's own to check.
            return {kind for part in schema[union] for kind in _types(part)}
    kind = schema.get("type")
    if kind is None:
        return {"string"} if "enum" in schema else {"object"} if "properties" in schema else {"any"}
    return {str(each) for each in kind} if isinstance(kind, list) else {str(kind)}


def _has_open(value: JSON, is_open: IsOpen) -> bool:
    if isinstance(value, str):
        return is_open(value)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(_has_open(each, is_open) for each in inner)


def _there_are(name: str, known: Collection[str]) -> str:
    """The tools there are; of many, those with a name like the given one."""
    if len(known) <= FEW:
        return f"There are: {', '.join(sorted(known))}."
    near = difflib.get_close_matches(name, sorted(known), 3, 0.5)
    return f"Did you mean {' or '.join(near)}?" if near else f"There are {len(known)} tools."


def _takes(tool: ToolSpec) -> str:
    required = tool.parameters.get("required", ())
    parts = []
    for name, schema in tool.parameters["properties"].items():
        kinds = shape_of(schema, tool.parameters)
        parts.append(f"{name}{f': {kinds}' if kinds != 'any' else ''}{'' if name in required else ' (optional)'}")
    return f"It takes {', '.join(parts)}." if parts else "It takes no input."


def _fold(name: object) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


def _shown(value: JSON) -> str:
    text = repr(value) if isinstance(value, str) else "null" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
