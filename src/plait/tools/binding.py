"""Turns a tool's input, as a model gave it, into the arguments of a Python call.

None is no argument, a scalar the one argument, a list arguments in order, an object arguments by name. A
tool with one object parameter (or one list parameter) takes an object (or list) whole. A text that is
itself JSON is read where the tool takes several arguments, since text dialects can write them no other way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plait.core.arguments import is_no_input, read_input, read_structure
from plait.core.errors import BadInput
from plait.core.messages import JSON
from plait.tools.kinds import Kind, Misfit, faults_of, place, shortened, shown
from plait.tools.signature import Parameter, Signature

MOST = 8
"""At most so many faults of one input are listed."""


def bind(tool: str, signature: Signature, value: JSON) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the named arguments. Raises `BadInput`, and nothing else, whatever the value."""
    try:
        return _arguments(signature, _named(signature, value))
    except _Unfit as unfit:
        more = len(unfit.faults) - MOST
        said = "; ".join((*unfit.faults[:MOST], *([f"and {more} more faults"] if more > 0 else [])))
    except RecursionError:
        said = "the input is nested too deeply"
    except Exception as error:  # a user's own validator may raise anything
        said = f"the input can't be taken ({type(error).__name__})"
    takes = "no input" if not signature.parameters and signature.rest is None else signature.shape
    raise BadInput(f"{tool}: {said}.", hint=f"It takes {takes}.")


class _Unfit(Exception):
    """The input does not fit; `faults` says all that is wrong with it."""

    def __init__(self, *faults: str) -> None:
        self.faults = faults
        super().__init__(*faults)


def _named(signature: Signature, value: JSON) -> dict[str, Any]:
    """The converted values by parameter name."""
    if value is None or (not signature.parameters and signature.rest is None and is_no_input(value)):
        return _of_nothing(signature)
    if isinstance(value, dict):
        return _of_object(signature, value)
    if isinstance(value, (list, tuple)):
        return _of_list(signature, value)
    return _of_scalar(signature, value)


def _of_nothing(signature: Signature) -> dict[str, Any]:
    required = [p for p in signature.parameters if p.required]
    if len(required) == 1 and required[0].kind.nothing:
        return {required[0].name: _converted(required[0], None)}
    faults: list[str] = []
    found = _complete(signature, (), faults)
    if faults:
        raise _Unfit(*faults)
    return found


def _of_object(signature: Signature, value: dict[str, Any]) -> dict[str, Any]:
    whole = _whole(signature, "objects")
    if whole is not None and whole.name not in value:
        return {whole.name: _converted(whole, value)}
    try:
        return _by_name(signature, value)
    except _Unfit as unfit:
        if whole is None or len(signature.parameters) > 1:
            raise
        try:
            return {whole.name: _converted(whole, value)}
        except _Unfit:
            raise unfit from None


def _by_name(signature: Signature, value: dict[str, Any]) -> dict[str, Any]:
    given: list[tuple[Parameter, Any]] = []
    left = dict(value)
    for parameter in signature.parameters:
        if parameter.name in left:
            given.append((parameter, left.pop(parameter.name)))
    for name in list(left):  # "City" and "max-results" are City and max_results misspelt
        there = {parameter.name for parameter, _ in given}
        alike = [p for p in signature.parameters if p.name not in there and _fold(p.name) == _fold(name)]
        if len(alike) == 1:
            given.append((alike[0], left.pop(name)))
    faults: list[str] = []
    if left and signature.rest is None:
        known = ", ".join(p.name for p in signature.parameters) or "none"
        extra = ", ".join(shown(name) for name in list(left)[:5])
        faults.append(f"there is no parameter {extra} (known: {known})")
        left = {}
    found = _complete(signature, given, faults)
    for name, extra in left.items():
        if signature.rest is not None:
            _convert_into(found, faults, str(name), signature.rest, extra)
    if faults:
        raise _Unfit(*faults)
    return found


def _of_list(signature: Signature, value: list[Any] | tuple[Any, ...]) -> dict[str, Any]:
    parameters = signature.parameters
    if len(parameters) == 1 and parameters[0].kind.lists:
        try:
            return {parameters[0].name: _converted(parameters[0], value)}
        except _Unfit:
            if len(value) != 1 or not isinstance(value[0], list):
                raise
    given: list[tuple[Parameter, Any]] = []
    faults: list[str] = []
    for i, parameter in enumerate(parameters):
        if parameter.spread:
            given.append((parameter, value[i:]))
            break
        if i < len(value):
            given.append((parameter, value[i]))
    else:
        if len(value) > len(parameters):
            faults.append(f"{len(value)} values came, but it takes at most {len(parameters)}")
    found = _complete(signature, given, faults)
    if faults:
        raise _Unfit(*faults)
    return found


def _of_scalar(signature: Signature, value: Any) -> dict[str, Any]:
    parameters = signature.parameters
    required = [p for p in parameters if p.required]
    if isinstance(value, str):
        if not required and is_no_input(value):
            return {}
        read = read_structure(value)
        if read is None:
            read = read_input(value, signature.schema, closed=True).value
        if isinstance(read, dict) and _names_parameters(signature, read):
            return _by_name(signature, read)
        if isinstance(read, (dict, list)) and len(required) > 1:
            return _named(signature, read)
    if not parameters:
        raise _Unfit(f"it takes no input, but {shown(value)} came")
    if len(required) > 1:
        names = ", ".join(p.name for p in required)
        raise _Unfit(f"it needs {names}, but only {shown(value)} came")
    target = required[0] if required else parameters[0]
    return {target.name: _converted(target, [value] if target.spread else value)}


def _names_parameters(signature: Signature, read: dict[str, Any]) -> bool:
    """Is a text's JSON object the arguments by name, rather than a value for the one parameter?"""
    names = {p.name for p in signature.parameters}
    return bool(read) and read.keys() <= names and {p.name for p in signature.parameters if p.required} <= read.keys()


def _whole(signature: Signature, what: str) -> Parameter | None:
    """The one parameter that an object is taken by, whole."""
    candidates = [p for p in signature.parameters if p.required] or list(signature.parameters)
    if len(candidates) != 1 or signature.rest is not None or candidates[0].spread:
        return None
    return candidates[0] if getattr(candidates[0].kind, what) else None


def _converted(parameter: Parameter, value: Any) -> Any:
    found: dict[str, Any] = {}
    faults: list[str] = []
    _convert_into(found, faults, parameter.name, parameter.kind, value)
    if faults:
        raise _Unfit(*faults)
    return found[parameter.name]


def _convert_into(found: dict[str, Any], faults: list[str], name: str, kind: Kind, value: Any) -> None:
    """Put the converted value under its name, or what is wrong with it into `faults`."""
    try:
        found[name] = kind.convert(value)
    except (Misfit, ValueError, OverflowError) as error:
        shown_name = shortened(name, 60)
        faults += [f"{place(shown_name, path)} {said}" for path, said in faults_of(kind, value, error)]


def _complete(signature: Signature, given: Iterable[tuple[Parameter, Any]], faults: list[str]) -> dict[str, Any]:
    """The converted values by name. What is wrong with them, and what is missing, goes into `faults`."""
    found: dict[str, Any] = {}
    there: set[str] = set()
    for parameter, value in given:
        there.add(parameter.name)
        _convert_into(found, faults, parameter.name, parameter.kind, value)
    missing = [p.name for p in signature.parameters if p.required and p.name not in there]
    if missing:
        faults.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return found


def _arguments(signature: Signature, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The values as a call takes them: by name, but for what can only be given by its place."""
    spread = next((p for p in signature.parameters if p.spread), None)
    extra = values.pop(spread.name, []) if spread else []
    args: list[Any] = []
    for parameter in signature.parameters:
        if parameter.spread:
            args.extend(extra)
            break
        if parameter.positional or extra:
            # what stands before a given argument must be given too, if only by its default
            args.append(values.pop(parameter.name, parameter.default))
    return tuple(args), values


def _fold(name: Any) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")
