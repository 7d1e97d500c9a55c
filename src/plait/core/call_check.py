"""Checks whether an input fits the JSON Schema of a tool's parameters, with the same result as the tool itself.

The binding of tools uses this module, as do loops that check planned calls before anything runs. It reads only JSON
Schemas, so a replay decides the same. `root` is always the schema at which references (`$ref`) start.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from plait.core.arguments import InvalidArguments, is_no_input, read_input, read_structure
from plait.core.artifacts import Artifact
from plait.core.json_schema import (
    Path,
    Schema,
    alternatives,
    choices_of,
    resolve_reference,
    shape_of,
    show_place,
    show_value,
    type_of,
    types_of,
    words_of,
)
from plait.core.messages import JSON
from plait.core.text import suggest
from plait.core.tools import ToolSpec

IsOpen: TypeAlias = Callable[[str], bool]
"""Whether a text refers to a result, so that its value is not known yet."""
Fault: TypeAlias = tuple[Path, str]
"""A fault of a value: its place, and a sentence that continues from it: "must be a number, not 'x'"."""
MAX_REFERENCES = 20
"""References that lead to one another."""

FEW = 12
"""Maximum number of tools that an error lists in full."""
MOST = 8
"""Maximum number of faults that an error lists for one input."""

_GROUPED = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_BOOLEANS = dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True)
_BOOLEANS |= dict.fromkeys(("false", "no", "off", "0", "f", "n"), False)
_MAY_HOLD_ARGUMENTS = re.compile("[{[(=:：,]")
_UNREADABLE: Any = object()
_BOUNDS = {
    "minimum": (float.__lt__, "at least"),
    "maximum": (float.__gt__, "at most"),
    "exclusiveMinimum": (float.__le__, "more than"),
    "exclusiveMaximum": (float.__ge__, "less than"),
}


# -- a planned call


def find_call_problem(tool: str, given: JSON, tools: Mapping[str, ToolSpec], is_open: IsOpen) -> str:
    """Return why a call cannot be made, as a sentence that continues the step's name; "" if it can."""
    spec = tools.get(tool)
    if spec is None:
        known = sorted(tools)
        hint = f"There are: {', '.join(known)}."
        if len(known) > FEW:  # then only those with a similar name
            hint = suggest(tool, known, f"There are {len(known)} tools.", most=3, cutoff=0.5)
        return f"uses '{tool}', which is no tool. {hint}"
    problem = find_input_problem(spec, given, is_open)
    if not problem:
        return ""
    required = spec.parameters.get("required", ())
    parts = []
    for name, schema in spec.parameters["properties"].items():
        shape = shape_of(schema, spec.parameters)
        parts.append(f"{name}{f': {shape}' if shape != 'any' else ''}{'' if name in required else ' (optional)'}")
    takes = f"It takes {', '.join(parts)}." if parts else "It takes no input."
    return f"gives {tool} what it cannot take: {problem}. {takes}"


def find_input_problem(tool: ToolSpec, given: JSON, is_open: IsOpen) -> str:
    """Return why a tool cannot take an input; "" if it can, or if that is not certain."""
    properties = tool.parameters.get("properties")
    if not isinstance(properties, dict):
        return ""
    try:
        given = _read_text(tool.parameters, given)
    except InvalidArguments as why:
        return str(why)
    if isinstance(given, str) and is_open(given):
        return ""
    # The schema does not say whether the last parameter takes all remaining values (`*names`).
    last = list(properties)[-1] if isinstance(given, list) and len(properties) > 1 else ""
    spread = last if last and types_of(properties[last], {}) & {"array", "any"} else ""
    placed, problems = place_arguments(tool.parameters, given, spread)
    for name, value in placed.items():
        if name in properties and name != spread and not _has_open(value, is_open):
            # Without a root, references allow any value: the actual type may accept more than its schema says.
            faults = find_faults(repair_value(value, properties[name], {}), properties[name], {})
            problems += [f"{show_place(name, path)} {text}" for path, text in faults]
    return list_faults(problems)


def _has_open(value: JSON, is_open: IsOpen) -> bool:
    if isinstance(value, str):
        return is_open(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_open(each, is_open) for each in inner)


# -- an input and the parameters


def place_arguments(
    parameters: Schema, given: Any, spread: str = "", *, by_name: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Return the value of each parameter, not yet checked, and the errors of the input as a whole.

    None is no argument, a scalar the one argument, a list the arguments in order, an object the arguments by name. A
    tool with one object or list parameter takes an object or a list whole. `spread` names the parameter that takes all
    remaining values. `by_name`: an object has the arguments by name, and is never the one argument whole.
    """
    properties: Mapping[str, Any] = parameters.get("properties", {})
    required = _required(parameters)
    try:
        given = _read_text(parameters, given)
    except InvalidArguments as why:
        return {}, [str(why)]
    placed: dict[str, Any] = {}
    faults: list[str] = []
    if isinstance(given, dict):
        placed, faults = _place_by_name(parameters, given, required, spread, by_name)
    elif isinstance(given, list | tuple):
        placed, faults = _place_in_order(parameters, given, spread)
    elif given is None:
        if len(required) == 1 and types_of(properties[required[0]], parameters) & {"null", "any"}:
            placed = {required[0]: None}
    elif required or not is_no_input(given):
        if not properties:
            return {}, [f"it takes no input, but {show_value(given)} is given"]
        if len(required) > 1:
            return {}, [f"it needs {', '.join(required)}, but only {show_value(given)} is given"]
        target = [*required, *properties][0]
        placed = {target: [given] if target == spread else given}
    if missing := [name for name in required if name not in placed]:
        faults.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return placed, faults


def _required(parameters: Schema) -> list[str]:
    return [name for name in parameters.get("required", ()) if name in parameters.get("properties", {})]


def _read_text(parameters: Schema, given: Any) -> Any:
    """Return the arguments in a text if the tool takes several or the text names them; else the input. Raises
    `InvalidArguments` as `read_input` does."""
    if not isinstance(given, str) or not _MAY_HOLD_ARGUMENTS.search(given):
        return given
    required = _required(parameters)
    read = read_structure(given)
    read = read_input(given, parameters, closed=True).value if read is None else read
    by_name = (
        isinstance(read, dict) and read and set(required) <= read.keys() <= parameters.get("properties", {}).keys()
    )
    return read if by_name or (isinstance(read, list | dict) and len(required) > 1) else given


def takes_other_names(parameters: Schema) -> bool:
    """Return whether a tool accepts arguments that its schema does not name. JSON Schema allows them unless it forbids
    them. If the schema names some, Plait reports others as mistakes."""
    more = parameters.get("additionalProperties")
    return bool(more) if more is not None else not parameters.get("properties") or "patternProperties" in parameters


def _place_by_name(
    parameters: Schema, given: Mapping[str, Any], required: list[str], spread: str, by_name: bool
) -> tuple[dict[str, Any], list[str]]:
    properties: Mapping[str, Any] = parameters.get("properties", {})
    if not properties and is_no_input(given):
        return {}, []
    single = required or [*properties]
    whole = single[0] if len(single) == 1 and single[0] != spread and not takes_other_names(parameters) else ""
    if by_name or (whole and not types_of(properties[whole], parameters) & {"object", "any"}):
        whole = ""
    if whole and whole not in given:
        return {whole: given}, []
    placed = {name: given[name] for name in properties if name in given}
    faults: list[str] = []
    other: dict[str, Any] = {}
    for name in [name for name in given if name not in properties]:
        # "City" and "max-results" are misspellings of city and max_results.
        alike = [known for known in properties if known not in placed and _fold(known) == _fold(name)]
        if len(alike) == 1:
            placed[alike[0]] = given[name]
        else:
            other[name] = given[name]
    if other and takes_other_names(parameters):
        placed |= {str(name): value for name, value in other.items()}
    elif other:
        extra = ", ".join(show_value(name) + _suggest(name, properties.keys() - placed.keys()) for name in other)
        faults.append(f"there is no parameter {extra} (known: {', '.join(properties) or 'none'})")
    if whole and len(properties) == 1:
        fits_by_name = not faults and _fits(given[whole], properties[whole], parameters)
        if not fits_by_name and _fits(given, properties[whole], parameters):
            return {whole: given}, []
    return placed, faults


def _place_in_order(parameters: Schema, given: Any, spread: str) -> tuple[dict[str, Any], list[str]]:
    properties: Mapping[str, Any] = parameters.get("properties", {})
    names = list(properties)
    if not names and is_no_input(given):
        return {}, []
    if len(names) == 1 and types_of(properties[names[0]], parameters) & {"array", "any"}:
        nested = len(given) == 1 and isinstance(given[0], list)
        if not nested or _fits(given, properties[names[0]], parameters):
            return {names[0]: given}, []
    before = names.index(spread) if spread in names else len(names)
    placed = dict(zip(names[:before], given, strict=False))
    if spread in names and len(given) > before:
        placed[spread] = given[before:]
    if spread not in names and len(given) > len(names):
        return placed, [f"it takes at most {len(names)} value{'s' * (len(names) != 1)}, but {len(given)} are given"]
    return placed, []


def _fits(value: Any, schema: Any, root: Schema) -> bool:
    return not any(find_faults(repair_value(value, schema, root), schema, root))


def _suggest(name: object, known: Collection[str]) -> str:
    near = difflib.get_close_matches(_fold(name)[:100], sorted(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""


def list_faults(faults: Sequence[str]) -> str:
    """Join the faults of an input; of more than `MOST`, the number of the others."""
    more = len(faults) - MOST
    return "; ".join([*faults[:MOST], *([f"and {more} more faults"] if more > 0 else [])])


def _fold(name: object) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


# -- a value and its schema


def repair_value(value: Any, schema: Any, root: Schema) -> Any:
    """Return the value as the schema requires it; a value with no or several readings stays unchanged."""
    if not schema:
        return value
    allowed = alternatives(schema, root)
    fitting = [one for one in allowed if _has_type(value, one)]
    if len(fitting) == 1 and "format" not in fitting[0]:
        return _repair_inside(value, fitting[0], root)
    may_be_null = any(type_of(one) == "null" for one in allowed) and all("format" in one for one in fitting)
    if may_be_null and isinstance(value, str) and value.strip().lower() in ("null", "none"):
        return None  # where any text is allowed, such a word is text
    if fitting or isinstance(value, list | dict):
        return value
    for one in allowed:
        try:
            read = _read_as(value, one)
        except (ValueError, OverflowError):  # not a number, or one with too many digits
            continue
        if read is not _UNREADABLE:
            return _repair_inside(read, one, root)
    return value


def _has_type(value: Any, schema: Schema) -> bool:
    if (choices := choices_of(schema)) is not None:
        return any(value == choice and type(value) is type(choice) for choice in choices)
    match type_of(schema):
        case "string":
            return isinstance(value, str) or ("format" in schema and isinstance(value, Artifact))
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, dict)
    return True


def _repair_inside(value: Any, schema: Schema, root: Schema) -> Any:
    if isinstance(value, list | tuple) and isinstance(items := schema.get("items"), dict) and items:
        return [repair_value(each, items, root) for each in value]
    if isinstance(value, dict) and (schema.get("properties") or schema.get("additionalProperties")):
        return {name: repair_value(each, _schema_of(name, schema), root) for name, each in value.items()}
    return value


def _schema_of(name: Any, schema: Schema) -> Any:
    """Return the schema of an object's entry; False if the entry is forbidden."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return {} if "patternProperties" in schema else schema.get("additionalProperties", {})


def _read_as(value: Any, schema: Schema) -> Any:
    """Return the one reading of a scalar as a type, else `_UNREADABLE`. Raises `ValueError` and `OverflowError`."""
    if not isinstance(value, str | int | float):
        return _UNREADABLE
    if (choices := choices_of(schema)) is not None:
        folded = {str(choice).casefold(): choice for choice in reversed(choices)}
        return folded.get(str(value).strip().casefold(), _UNREADABLE)
    kind = type_of(schema)
    if kind == "string" and "format" not in schema:
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind in ("integer", "number") and not isinstance(value, bool):
        number = _read_number(value) if isinstance(value, str) else value
        if kind == "number":
            return number
        return int(Decimal(repr(number))) if isinstance(number, int) or number.is_integer() else _UNREADABLE
    if kind == "boolean" and not isinstance(value, float):
        return _BOOLEANS.get(str(value).strip().lower(), _UNREADABLE)
    if kind in ("array", "object") and isinstance(value, str):
        read = read_structure(value)
        return read if read is not None and _has_type(read, schema) else _UNREADABLE
    return _UNREADABLE


def _read_number(text: str) -> int | float:
    text = text.strip()
    text = text.replace(",", "") if _GROUPED.fullmatch(text) else text
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if number - number != 0:
        raise ValueError("JSON can hold neither an infinite number nor NaN")
    return number


def find_faults(
    value: Any, schema: Any, root: Schema, known: dict[tuple[int, int], list[Fault]] | None = None
) -> list[Fault]:
    """Return each fault: its place, and a sentence such as "must be a number, not 'x'".

    If several alternatives of a schema have the value's type, the one with the fewest faults counts. `known` has those
    found so far, by the identity of value and schema: alternatives that refer to each other would multiply the work.
    """
    known = {} if known is None else known
    for _ in range(MAX_REFERENCES):
        referred = resolve_reference(schema["$ref"], root) if isinstance(schema, dict) and "$ref" in schema else None
        if not isinstance(referred, dict):
            break
        schema = referred
    key = (id(value), id(schema))
    if key not in known:
        known[key] = []  # a reference that leads back here
        fitting = [one for one in alternatives(schema, root) if _has_type(value, one)]
        if len(fitting) == 1:
            known[key] = _faults_inside(value, fitting[0], root, known)
        elif fitting:
            known[key] = min((_faults_inside(value, one, root, known) for one in fitting), key=len)
        else:
            known[key] = [((), f"must be {words_of(schema, root)}, not {show_value(value)}")]
    return known[key]


def _faults_inside(value: Any, schema: Schema, root: Schema, known: dict[tuple[int, int], list[Fault]]) -> list[Fault]:
    if isinstance(value, list | tuple):
        faults: list[Fault] = [((), text) for text in _out_of_bounds(value, schema)]
        items = schema.get("items")
        inside: list[tuple[str | int, Any, Any]] = (
            [(i, each, items) for i, each in enumerate(value)] if isinstance(items, dict) and items else []
        )
    elif isinstance(value, dict):
        missing = [name for name in schema.get("required", ()) if name not in value]
        unknown = sorted(str(name) for name in value if name not in schema.get("properties", value))
        near = [difflib.get_close_matches(name, unknown, 1) for name in missing]
        there = [f" ({each[0]!r} is there instead)" if each else "" for each in near]
        faults = [((name,), f"is missing{instead}") for name, instead in zip(missing, there, strict=True)]
        found = [(str(name), each, _schema_of(name, schema)) for name, each in value.items()]
        left = schema.get("properties", {}).keys() - value.keys()
        faults += [((name,), f"is not known{_suggest(name, left)}") for name, _, inner in found if inner is False]
        inside = [(name, each, inner) for name, each, inner in found if inner]
    else:
        return [((), text) for text in _out_of_bounds(value, schema)]
    for name, each, inner in inside:
        faults += [((name, *path), text) for path, text in find_faults(each, inner, root, known)]
    return faults


def _out_of_bounds(value: Any, schema: Schema) -> Iterator[str]:
    if isinstance(value, str | list | tuple):
        what, of = ("characters", "Length") if isinstance(value, str) else ("entries", "Items")
        least, most = schema.get(f"min{of}"), schema.get(f"max{of}")
        if isinstance(least, int) and len(value) < least:
            yield f"has {len(value):,} {what}, but at least {least:,} are needed"
        if isinstance(most, int) and len(value) > most:
            yield f"has {len(value):,} {what}, but at most {most:,} are allowed"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for key, bound in schema.items():
            if key in _BOUNDS and isinstance(bound, int | float) and abs(value) < 1e300:
                is_outside, words = _BOUNDS[key]
                if is_outside(float(value), float(bound)):
                    yield f"must be {words} {bound}, not {value}"
