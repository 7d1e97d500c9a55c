"""Describes a function's parameters for a model, and makes the arguments of a call from the model's input."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import typing
from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from plait.core.artifacts import Artifact
from plait.core.call_check import list_faults, place_arguments, takes_other_names
from plait.core.errors import BadInput, ConfigError
from plait.core.json_schema import shape_of, show_place, words_of
from plait.core.messages import JSON
from plait.tools.call_context import CallContext
from plait.tools.docstrings import read_docstring
from plait.tools.end_run import EndRun
from plait.tools.parameters import read_parameters
from plait.tools.python_types import Misfit, PythonType, Undescribable, describe_types
from plait.tools.tool import docstring_of

_KINDS = inspect.Parameter
_MISSING = inspect.Parameter.empty
BINARY = "binary"  # the format of bytes in a JSON Schema


class Signature(Struct, frozen=True):
    """The description of a tool's input and output.

    `schema` is the JSON Schema of the input: of type object, with a property for each parameter, in order. `returns`
    describes the result, `result` is its type as Python writes it; both are "" if unknown. A tool that is a Python
    function has `types`, the Python type of each parameter (`**` for arguments with other names), and `function` if its
    arguments cannot all be given by name. `spread` is the name of `*names`. `context` is the type hint of a first
    parameter that takes the call's context, which is no part of the schema; None without one. `bound` are the names
    that `functools.partial` gave a value: no input may have them. `defaults` make the value of a parameter that is not
    given from the other arguments. Those in `fields` are pydantic's `Field`, which Python itself would pass.
    """

    schema: dict[str, Any]
    summary: str = ""
    returns: str = ""
    result: str = ""
    types: Mapping[str, PythonType] = {}
    function: inspect.Signature | None = None
    spread: str = ""
    context: Any = None
    bound: frozenset[str] = frozenset()
    defaults: Mapping[str, Callable[[dict[str, Any]], Any]] = {}
    fields: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """The names that values in order get: all parameters, or those before `*names`."""
        names = list(self.schema["properties"])
        return names[: names.index(self.spread)] if self.spread else names

    @property
    def takes_artifacts(self) -> bool:
        """Whether a parameter is an artifact, which a model names by its id."""
        return any(map(self.find_kinds, self.types))

    def find_kinds(self, name: str) -> set[str]:
        """Return the kinds of artifacts that a parameter takes, with `BINARY` if it takes bytes."""
        known = self.types.get(name, PythonType({}))
        found = _find_formats(known.schema) & {*Artifact.kinds, BINARY}
        return found if known.is_exact or BINARY in found else set()

    @property
    def shape(self) -> str:
        """The input in one line: `{"city": string, "days": integer (optional)}`."""
        takes_any = self.schema["properties"] or takes_other_names(self.schema)
        return shape_of(self.schema) if takes_any else "{}"

    def type_of(self, name: str) -> PythonType:
        """Return the type of a parameter, or of an argument that the schema does not name."""
        known = self.types.get(name) or (self.types.get("**") if name not in self.schema["properties"] else None)
        return known or PythonType(self.schema["properties"].get(name, self.schema.get("additionalProperties")))

    def bind(self, tool: str, given: JSON, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the Python values of an input by parameter name, without defaults. Raises only `BadInput`."""
        try:
            placed, faults = place_arguments(self.schema, given, self.spread, by_name=kept is not None)
            if self.bound:
                faults += [f"there is no parameter '{name}'" for name in sorted(self.bound & placed.keys())]
            values: dict[str, Any] = {}
            for name, value in placed.items():
                try:
                    if kept and name in kept:
                        values[name] = kept[name]
                    else:
                        values[name] = self.type_of(name).convert(value, self.schema)
                except Misfit as misfit:
                    faults += [f"{show_place(name, path)} {text}" for path, text in misfit.faults]
            if not faults:
                return values
            said = list_faults(faults)
        except RecursionError:
            said = "the input is nested too deeply"
        except (Exception, SystemExit, KeyboardInterrupt, CancelledError, EndRun) as error:  # a user's validator did
            said = f"the input can't be taken ({type(error).__name__})"
        takes = self.shape
        raise BadInput(f"{tool}: {said}.", hint=f"It takes {takes if takes != '{}' else 'no input'}.")

    def split(self, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return values by parameter name as the positional and the named arguments of the function."""
        if missing := self.fields - values.keys():
            values = values | {name: make(values) for name, make in self.defaults.items() if name in missing}
        if self.function is None:
            return (), values
        named = self.schema["properties"]
        other = {name: value for name, value in values.items() if name not in named}
        bound = inspect.BoundArguments(self.function, OrderedDict((k, v) for k, v in values.items() if k in named))
        bound.apply_defaults()
        return bound.args, bound.kwargs | other


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """Read the signature of a function for the tool `name`. Raises `ConfigError` if a type hint cannot be resolved or
    JSON cannot describe it."""
    described = read_docstring(docstring_of(function))
    try:
        python, bound = read_parameters(function)
    except ValueError as error:
        raise ConfigError(
            f"The tool {name} can't be described: its function does not show its parameters ({error}).",
            hint="Wrap it in a typed Python function.",
        ) from error
    except Exception as error:  # a hint is any expression, and may fail in any way
        advice = "Define or import the type where the function's module can see it, not inside a function."
        raise ConfigError(f"The tool {name} has a type hint that can't be resolved: {error}.", hint=advice) from error
    kinds = ((each, typing.get_origin(each.annotation) or each.annotation) for each in python.parameters.values())
    context = None  # the type of a first parameter for the call's context
    if takers := [each for each, kind in kinds if isinstance(kind, type) and issubclass(kind, CallContext)]:
        first, *others = python.parameters.values()
        if takers != [first] or first.kind not in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD):
            advice = "Make it the first parameter."
            raise ConfigError(f"The tool {name} takes its context as the parameter {takers[-1].name!r}.", hint=advice)
        python, context = python.replace(parameters=others), first.annotation
    wanted: dict[str, Any] = {}
    texts: dict[str, str] = {}
    shown: dict[str, Any] = {}
    makers: dict[str, Callable[[dict[str, Any]], Any]] = {}
    fields: set[str] = set()
    spread = ""
    for parameter in python.parameters.values():
        hint, default = parameter.annotation, parameter.default
        if hint is _MISSING:
            hint = bool if isinstance(default, bool) else Any
        hint, default, make, said = _unwrapped(hint, default)
        if make is not None:
            makers[parameter.name] = make
            fields.add(parameter.name)
        elif default is not _MISSING:
            # A copy, so that no call changes it for the next one.
            makers[parameter.name] = partial(lambda default, _: copy.deepcopy(default), default)
        if parameter.kind is _KINDS.VAR_POSITIONAL:
            spread, hint = parameter.name, list.__class_getitem__(hint)
        wanted["**" if parameter.kind is _KINDS.VAR_KEYWORD else parameter.name] = hint
        texts[parameter.name] = described.parameters.get(parameter.name) or said
        shown[parameter.name] = default
    try:
        types, definitions = describe_types(wanted)
    except Undescribable as error:
        raise ConfigError(
            f"The tool {name} has a parameter of a type that JSON can't describe: {error}.",
            hint="Use plain types, a data class, an enum or a pydantic model.",
        ) from error
    properties: dict[str, Any] = {}
    for key in wanted:
        if key != "**":
            properties[key] = {**types[key].schema} | ({"description": texts[key]} if texts[key] else {})
            if shown[key] is None or isinstance(shown[key], bool | int | float | str):
                properties[key]["default"] = shown[key]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [key for key in properties if shown[key] is _MISSING and key != spread]:
        schema["required"] = required
    schema["additionalProperties"] = (types["**"].schema or True) if "**" in types else False
    if definitions:
        schema["$defs"] = definitions
    in_order = any(one.kind in (_KINDS.POSITIONAL_ONLY, _KINDS.VAR_POSITIONAL) for one in python.parameters.values())
    returned = python.return_annotation
    kind = typing.get_origin(returned) or returned
    if kind in (Iterable, AsyncIterable) or (isinstance(kind, type) and issubclass(kind, Iterator | AsyncIterator)):
        # Plait collects what a generator yields.
        returned = list.__class_getitem__(next(iter(typing.get_args(returned)), Any))
    return Signature(
        schema,
        described.summary,
        described.returns or _returns(returned),
        _result(returned),
        types,
        python if in_order else None,
        spread,
        context,
        bound,
        makers,
        frozenset(fields),
    )


def _unwrapped(hint: Any, default: Any) -> tuple[Any, Any, Callable[[dict[str, Any]], Any] | None, str]:
    """Return the hint with all that pydantic's `Field` says, the default as the schema shows it, what makes the default
    of a `Field` from the other arguments (None for Python's own default), and the description."""
    if _is_field(default):
        hint, default = typing.Annotated[hint, default], _MISSING
    said, field = "", None
    for extra in getattr(hint, "__metadata__", ()):
        text = extra if isinstance(extra, str) else getattr(extra, "description", None)
        said = text if isinstance(text, str) else said
        field = extra if _is_field(extra) and not extra.is_required() else field
    if field is None or default is not _MISSING:
        return hint, default, None, said
    make = partial(field.get_default, call_default_factory=True)
    # What a factory makes is not shown: it may be new for each call.
    return hint, ... if field.default_factory else field.default, lambda others: make(validated_data=others), said


def _is_field(value: Any) -> bool:
    """Whether it is a `Field` of pydantic, or of a library that derives from it."""
    return not isinstance(value, type) and hasattr(value, "is_required") and hasattr(value, "default_factory")


def _returns(hint: Any) -> str:
    """Describe a returned type in words; "" for a type without information."""
    if hint in (None, type(None)):
        return "nothing"
    if hint is _MISSING:
        return ""
    with contextlib.suppress(Exception):  # a type that nothing describes has a name
        types, definitions = describe_types({"": hint})
        if types[""].is_exact and not definitions:
            return words_of(types[""].schema, {}) if types[""].schema else ""
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _result(hint: Any) -> str:
    """Return a type hint without the modules of its names; "" for a type without information."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint in (Any, object, _MISSING) or isinstance(hint, typing.TypeVar):
        return ""
    if hint in (None, type(None)):
        return "None"
    plain = isinstance(hint, type) and typing.get_origin(hint) is None
    return hint.__name__ if plain else re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", str(hint))


def _find_formats(schema: Any) -> set[str]:
    """Return the formats of a type's texts: its own, and those of the items of a list and the parts of a union."""
    if not isinstance(schema, dict):
        return set()
    return {str(schema.get("format"))}.union(*map(_find_formats, [*schema.get("anyOf", ()), schema.get("items")]))
