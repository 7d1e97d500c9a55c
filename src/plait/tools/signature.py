"""A function's parameters as a model is told of them: read from its type hints and docstring."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from plait.core.errors import UsageError
from plait.core.shapes import shape_of
from plait.tools.docstrings import Described, read_docstring
from plait.tools.kinds import ANYTHING, Kind, plain_kind
from plait.tools.tool import innermost

_KINDS = inspect.Parameter
_MISSING = inspect.Parameter.empty


class Parameter(Struct, frozen=True):
    """One parameter. `spread` is True for `*names`, whose kind is that of each entry's list.

    `positional` says that it can't be given by name; `default` is `inspect.Parameter.empty` for a required
    one.
    """

    name: str
    kind: Kind
    description: str = ""
    default: Any = _MISSING
    positional: bool = False
    spread: bool = False

    @property
    def required(self) -> bool:
        return self.default is _MISSING and not self.spread


class Signature(Struct, frozen=True):
    """All that is known of a function's input and output.

    `rest` is the kind of further named arguments (`**names`), None where there can be none. `definitions`
    are the schemas that parameters share. `returns` says in words what comes back, `result` its type as it is written
    in Python, "" where it is not said.
    """

    parameters: tuple[Parameter, ...]
    summary: str
    returns: str
    rest: Kind | None
    definitions: dict[str, Any]
    result: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the input, of type object, a property a parameter, in order."""
        properties: dict[str, Any] = {}
        for parameter in self.parameters:
            described = dict(parameter.kind.schema)
            if parameter.description:
                described["description"] = parameter.description
            if parameter.default is not _MISSING and _is_json(parameter.default):
                described["default"] = parameter.default
            properties[parameter.name] = described
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        required = [parameter.name for parameter in self.parameters if parameter.required]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False if self.rest is None else self.rest.schema or True
        if self.definitions:
            schema["$defs"] = self.definitions
        return schema

    @property
    def takes_things(self) -> bool:
        """Some parameter is a thing, which a model names by its id."""
        return any(parameter.kind.thing for parameter in self.parameters)

    @property
    def shape(self) -> str:
        """The input in one line: `{"city": string, "days": integer (optional)}`."""
        return shape_of(self.schema) if self.parameters or self.rest is not None else "{}"


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """The signature of a function that is to be the tool `name`.

    Raises `UsageError` when a type hint can't be resolved or is of a type that JSON can't describe.
    """
    described = read_docstring(innermost(function).__doc__)
    hints = _hints(function, name)
    found: list[Parameter] = []
    users: dict[str, Any] = {}
    rest: Kind | None = None
    for parameter in _parameters(function, name):
        hint, default, said = _unwrapped(hints.get(parameter.name, Any), parameter.default)
        kind = plain_kind(hint)
        if parameter.kind is _KINDS.VAR_KEYWORD:
            rest = kind or ANYTHING
            continue
        spread = parameter.kind is _KINDS.VAR_POSITIONAL
        if spread:
            hint = list.__class_getitem__(hint)
            kind = plain_kind(hint)
        if kind is None:
            users[parameter.name] = hint
        found.append(
            Parameter(
                parameter.name,
                kind or ANYTHING,
                described.parameters.get(parameter.name) or said,
                default,
                parameter.kind is _KINDS.POSITIONAL_ONLY,
                spread,
            )
        )
    definitions: dict[str, Any] = {}
    if users:
        kinds, definitions = _user_kinds(users, name)
        found = [structs.replace(p, kind=kinds.get(p.name, p.kind)) for p in found]
    result = _result(hints.get("return", Any))
    return Signature(tuple(found), described.summary, _returns(described, hints), rest, definitions, result)


def _user_kinds(users: dict[str, Any], name: str) -> tuple[dict[str, Kind], dict[str, Any]]:
    from plait.tools.userkinds import Undescribable, user_kinds

    try:
        return user_kinds(users)
    except Undescribable as error:
        raise UsageError(
            f"The tool {name} has a parameter of a type that JSON can't describe: {error}.",
            hint="Use plain types, a data class, an enum or a pydantic model.",
        ) from error


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"The tool {name} can't be described: its function does not show its parameters ({error}).",
            hint="Wrap it in a typed Python function.",
        ) from error


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    inner = inspect.unwrap(innermost(function))
    inner = inner.__init__ if inspect.isclass(inner) else inner
    try:
        return typing.get_type_hints(inner, include_extras=True)
    except Exception as error:  # a hint is any expression, and may fail in any way
        raise UsageError(
            f"The tool {name} has a type hint that can't be resolved: {error}.",
            hint="Define or import the type where the function's module can see it, not inside a function.",
        ) from error


def _unwrapped(hint: Any, default: Any) -> tuple[Any, Any, str]:
    """The hint, the default and the description, out of `Annotated` and pydantic's `Field`."""
    if type(default).__module__.startswith("pydantic.") and hasattr(default, "is_required"):
        hint = typing.Annotated[hint, default]
        default = _MISSING if default.is_required() else default.get_default(call_default_factory=True)
    said = ""
    for extra in getattr(hint, "__metadata__", ()):
        text = extra if isinstance(extra, str) else getattr(extra, "description", None)
        said = text if isinstance(text, str) else said
    return hint, default, said


def _returns(described: Described, hints: dict[str, Any]) -> str:
    if described.returns or "return" not in hints:
        return described.returns
    hint = hints["return"]
    if hint in (None, type(None)):
        return "nothing"
    kind = plain_kind(hint)
    if kind is not None:
        return "" if kind is ANYTHING else kind.words
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _result(hint: Any) -> str:
    """A type hint as it is written, without the modules that its names are from; "" for one that says nothing."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint in (Any, object) or isinstance(hint, typing.TypeVar):
        return ""
    if hint in (None, type(None)):
        return "None"
    plain = isinstance(hint, type) and typing.get_origin(hint) is None
    return hint.__name__ if plain else re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", str(hint))


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
