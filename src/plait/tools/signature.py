"""Describes a function's parameters for a model, and makes the arguments of a call from the model's input."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping
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
from plait.tools.python_types import Misfit, PythonType, Undescribable, describe_types
from plait.tools.tool import innermost

_KINDS = inspect.Parameter
_MISSING = inspect.Parameter.empty


class Signature(Struct, frozen=True):
    """The description of a tool's input and output.

    `schema` is the JSON Schema of the input: of type object, with a property for each parameter, in order. `returns`
    describes the result, `result` is its type as Python writes it; both are "" if unknown. A tool that is a Python
    function has `types`, the Python type of each parameter (`**` for arguments with other names), and `function` if its
    arguments cannot all be given by name. `spread` is the name of `*names`. `context` is the type hint of a first
    parameter that takes the call's context, which is no part of the schema; None without one. `defaults` make the
    value of a parameter that is not given.
    """

    schema: dict[str, Any]
    summary: str = ""
    returns: str = ""
    result: str = ""
    types: Mapping[str, PythonType] = {}
    function: inspect.Signature | None = None
    spread: str = ""
    context: Any = None
    defaults: Mapping[str, Callable[[], Any]] = {}

    @property
    def names(self) -> list[str]:
        """The names of the parameters in order, without `*names`."""
        return [name for name in self.schema["properties"] if name != self.spread]

    @property
    def takes_artifacts(self) -> bool:
        """Whether a parameter is an artifact, which a model names by its id."""
        return any(_is_artifact(each.schema) for each in self.types.values() if each.is_exact)

    @property
    def shape(self) -> str:
        """The input in one line: `{"city": string, "days": integer (optional)}`."""
        takes_any = self.schema["properties"] or takes_other_names(self.schema)
        return shape_of(self.schema) if takes_any else "{}"

    def type_of(self, name: str) -> PythonType:
        """Return the type of a parameter, or of an argument that the schema does not name."""
        known = self.types.get(name) or (self.types.get("**") if name not in self.schema["properties"] else None)
        return known or PythonType(self.schema["properties"].get(name, self.schema.get("additionalProperties")))


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """Read the signature of a function for the tool `name`.

    Raises `ConfigError` if a type hint cannot be resolved or JSON cannot describe it.
    """
    described = read_docstring(innermost(function).__doc__)
    hints = _hints(function, name)
    python, context = _without_context(_python_signature(function, name), hints, name)
    wanted: dict[str, Any] = {}
    texts: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    makers: dict[str, Callable[[], Any]] = {}
    spread = ""
    for parameter in python.parameters.values():
        hint, defaults[parameter.name], said = _unwrapped(hints.get(parameter.name, Any), parameter.default)
        if defaults[parameter.name] is not _MISSING:
            makers[parameter.name] = partial(_make_default, parameter.default)
        if parameter.kind is _KINDS.VAR_POSITIONAL:
            spread, hint = parameter.name, list.__class_getitem__(hint)
        wanted["**" if parameter.kind is _KINDS.VAR_KEYWORD else parameter.name] = hint
        texts[parameter.name] = described.parameters.get(parameter.name) or said
    types, definitions = _describe(wanted, name)
    properties: dict[str, Any] = {}
    for key in wanted:
        if key != "**":
            properties[key] = {**types[key].schema} | ({"description": texts[key]} if texts[key] else {})
            if defaults[key] is None or isinstance(defaults[key], bool | int | float | str):
                properties[key]["default"] = defaults[key]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := [key for key in properties if defaults[key] is _MISSING and key != spread]:
        schema["required"] = required
    schema["additionalProperties"] = (types["**"].schema or True) if "**" in types else False
    if definitions:
        schema["$defs"] = definitions
    in_order = any(one.kind in (_KINDS.POSITIONAL_ONLY, _KINDS.VAR_POSITIONAL) for one in python.parameters.values())
    returned = hints.get("return", _MISSING)
    return Signature(
        schema,
        described.summary,
        described.returns or _returns(returned),
        _result(returned),
        types,
        python if in_order else None,
        spread,
        context,
        makers,
    )


def _without_context(
    python: inspect.Signature, hints: Mapping[str, Any], name: str
) -> tuple[inspect.Signature, Any | None]:
    """Return the signature without a first parameter for the call's context, and the type hint of that parameter."""
    takers = [each for each in python.parameters if _is_context(hints.get(each))]
    if not takers:
        return python, None
    first, *others = python.parameters.values()
    if takers != [first.name] or first.kind not in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD):
        raise ConfigError(
            f"The tool {name} takes its context as the parameter {takers[-1]!r}.", hint="Make it the first parameter."
        )
    return python.replace(parameters=others), hints[first.name]


def _is_context(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and issubclass(kind, CallContext)


def _describe(wanted: dict[str, Any], name: str) -> tuple[dict[str, PythonType], dict[str, Any]]:
    try:
        return describe_types(wanted)
    except Undescribable as error:
        raise ConfigError(
            f"The tool {name} has a parameter of a type that JSON can't describe: {error}.",
            hint="Use plain types, a data class, an enum or a pydantic model.",
        ) from error


def _python_signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"The tool {name} can't be described: its function does not show its parameters ({error}).",
            hint="Wrap it in a typed Python function.",
        ) from error


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    inner = inspect.unwrap(innermost(function))
    inner = inner.__init__ if inspect.isclass(inner) else inner
    try:
        return typing.get_type_hints(inner, include_extras=True)
    except Exception as error:  # a hint is any expression, and may fail in any way
        raise ConfigError(
            f"The tool {name} has a type hint that can't be resolved: {error}.",
            hint="Define or import the type where the function's module can see it, not inside a function.",
        ) from error


def _unwrapped(hint: Any, default: Any) -> tuple[Any, Any, str]:
    """Return the hint, the default and the description, out of `Annotated` and pydantic's `Field`."""
    if type(default).__module__.startswith("pydantic.") and hasattr(default, "is_required"):
        hint = typing.Annotated[hint, default]
        default = _MISSING if default.is_required() else default.get_default(call_default_factory=True)
    said = ""
    for extra in getattr(hint, "__metadata__", ()):
        text = extra if isinstance(extra, str) else getattr(extra, "description", None)
        said = text if isinstance(text, str) else said
    return hint, default, said


def _make_default(default: Any) -> Any:
    """Return the value of a default: a copy, so that no call changes it for the next one."""
    if hasattr(default, "get_default") and type(default).__module__.startswith("pydantic."):
        return default.get_default(call_default_factory=True)
    return copy.deepcopy(default)


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


def _is_artifact(schema: Any) -> bool:
    """Whether the schema of a plain type is that of an artifact, a list of artifacts, or a union with one."""
    if schema.get("format") in Artifact.kinds:
        return True
    return any(map(_is_artifact, schema.get("anyOf", [schema["items"]] if "items" in schema else [])))


def bind_values(tool: str, signature: Signature, given: JSON, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the Python values of an input by parameter name, without defaults. See `Tool.bind_values`.

    Raises only `BadInput`.
    """
    try:
        placed, faults = place_arguments(signature.schema, given, signature.spread, by_name=kept is not None)
        values: dict[str, Any] = {}
        for name, value in placed.items():
            try:
                if kept and name in kept:
                    values[name] = kept[name]
                else:
                    values[name] = signature.type_of(name).convert(value, signature.schema)
            except Misfit as misfit:
                faults += [f"{show_place(name, path)} {text}" for path, text in misfit.faults]
        if not faults:
            return values
        said = list_faults(faults)
    except RecursionError:
        said = "the input is nested too deeply"
    except Exception as error:  # a user's own validator may raise anything
        said = f"the input can't be taken ({type(error).__name__})"
    takes = signature.shape
    raise BadInput(f"{tool}: {said}.", hint=f"It takes {takes if takes != '{}' else 'no input'}.")


def split_arguments(signature: Signature, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the values by name, or in order if Python cannot take them all by name."""
    if signature.function is None:
        return (), values
    named = signature.schema["properties"]
    other = {name: value for name, value in values.items() if name not in named}
    bound = inspect.BoundArguments(signature.function, OrderedDict((k, v) for k, v in values.items() if k in named))
    bound.apply_defaults()
    return bound.args, bound.kwargs | other
