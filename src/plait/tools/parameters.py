"""Finds the parameters that a call of a function really takes, with their types: behind decorators, in a partial, of
an object."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from inspect import Parameter, Signature
from types import MethodType, SimpleNamespace
from typing import Any

_IN_ORDER = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def read_parameters(function: Callable[..., Any]) -> tuple[Signature, frozenset[str]]:
    """Return the signature of a call, with types in place of annotations, and the names that `functools.partial` bound.

    A bound parameter is not in the signature. A decorator with `functools.wraps` takes its own parameters, and those of
    the function inside where it has `*args` or `**kwargs`. Raises `ValueError` or `TypeError` for a function that does
    not show its parameters, and any error of a type hint that cannot be resolved.
    """
    if isinstance(function, functools.partial):
        signature, bound = read_parameters(function.func)
        kept, taken = _leave_out_bound(signature, function)
        return signature.replace(parameters=kept), bound | taken | function.keywords.keys()
    if isinstance(function, MethodType):
        signature, bound = read_parameters(function.__func__)
        first, *others = signature.parameters.values() or (Parameter("self", Parameter.POSITIONAL_ONLY),)
        return signature.replace(parameters=others if first.kind in _IN_ORDER else [first, *others]), bound
    inside = None if "__signature__" in getattr(function, "__dict__", ()) else getattr(function, "__wrapped__", None)
    call = type(function).__call__
    if inside is None and not isinstance(function, type) and hasattr(call, "__globals__"):
        return read_parameters(MethodType(call, function))
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except ValueError:  # written in C, as `functools.lru_cache`
        if inside is None:
            raise
        return read_parameters(inside)
    passes = {each.kind for each in own.parameters.values()} & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    if inside is None or not passes:
        return _resolve(function, own, own.parameters), frozenset()
    inner, bound = read_parameters(inside)
    own = _resolve(function, own, [each.name for each in own.parameters.values() if each.kind not in passes])
    merged = [each for each in own.parameters.values() if each.kind not in passes]
    names = {each.name for each in merged}
    dispatch = hasattr(function, "dispatch") and hasattr(function, "registry")  # singledispatch looks at a first value
    for each in inner.parameters.values():
        kind = each.kind
        if each.name in names or (kind is Parameter.KEYWORD_ONLY and Parameter.VAR_KEYWORD not in passes):
            continue
        if kind is Parameter.POSITIONAL_OR_KEYWORD and Parameter.VAR_KEYWORD not in passes:
            kind = Parameter.POSITIONAL_ONLY
        elif kind in _IN_ORDER and Parameter.VAR_POSITIONAL not in passes:
            kind = Parameter.KEYWORD_ONLY
        elif dispatch:
            kind, dispatch = Parameter.POSITIONAL_ONLY, False
        merged.append(each.replace(kind=kind))
    return inner.replace(parameters=_in_order(merged)), bound


def _in_order(parameters: list[Parameter]) -> list[Parameter]:
    """Give the parameters of a decorator and of its function kinds that one signature allows, and sort them by kind."""
    last = max((i for i, each in enumerate(parameters) if each.kind is Parameter.POSITIONAL_ONLY), default=-1)
    found: list[Parameter] = []
    has_default = False
    for i, each in enumerate(parameters):
        if each.kind in _IN_ORDER:
            has_default = has_default or each.default is not Parameter.empty
            if i < last:
                each = each.replace(kind=Parameter.POSITIONAL_ONLY)
            elif has_default and each.default is Parameter.empty:  # only a name can reach it
                each = each.replace(kind=Parameter.KEYWORD_ONLY)
        found.append(each)
    return sorted(found, key=lambda each: each.kind)


def _leave_out_bound(signature: Signature, made: functools.partial[Any]) -> tuple[list[Parameter], set[str]]:
    """Return the parameters that a partial leaves open, and the names of those that it binds by position."""
    open_ones: list[Parameter] = []
    taken: set[str] = set()
    by_name = False
    for each in signature.parameters.values():
        if each.kind in _IN_ORDER and len(taken) < len(made.args):
            taken.add(each.name)
        elif each.kind in (*_IN_ORDER, Parameter.KEYWORD_ONLY) and each.name in made.keywords:
            by_name = by_name or each.kind in _IN_ORDER
        elif by_name and each.kind in _IN_ORDER:
            open_ones.append(each.replace(kind=Parameter.KEYWORD_ONLY))
        elif not (by_name and each.kind is Parameter.VAR_POSITIONAL):
            open_ones.append(each)
    return open_ones, taken


def _resolve(function: Any, signature: Signature, names: Iterable[str]) -> Signature:
    """Return the signature with the types of these parameters and of the result, which may be written as text."""
    inner = inspect.unwrap(function)
    inner = inner.__init__ if isinstance(inner, type) else inner
    own_names = getattr(function, "__globals__", {})
    seen = {**own_names, **getattr(inner, "__globals__", {})}
    local = _enclosed(inner)
    written = {each: signature.parameters[each].annotation for each in names} | {"return": signature.return_annotation}
    written = {name: hint for name, hint in written.items() if hint is not Parameter.empty}
    hints = _evaluate(written, seen, local)
    if inner is not function:  # `functools.wraps` replaced the annotations of the decorator by those of the function
        for name, hint in _annotations_in_source(function).items():
            if name in names:
                with suppress(Exception):
                    hints |= _evaluate({name: hint}, own_names, _enclosed(function))
    parameters = [
        each.replace(annotation=hints.get(each.name, Parameter.empty)) for each in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=hints.get("return", Parameter.empty))


def _evaluate(written: dict[str, Any], seen: Mapping[str, Any], local: Mapping[str, Any]) -> dict[str, Any]:
    holder = SimpleNamespace(__annotations__=written)
    return typing.get_type_hints(holder, dict(seen), dict(local), include_extras=True)


def _enclosed(function: Any) -> Mapping[str, Any]:
    """Return the values of the enclosing function that a function uses."""
    with suppress(TypeError, ValueError):
        return inspect.getclosurevars(function).nonlocals
    return {}


def _annotations_in_source(function: Any) -> dict[str, str]:
    """Return the annotations of parameters as the source has them; none without a source."""
    with suppress(Exception):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function.__code__))).body
        written = definition.args  # type: ignore[attr-defined]  # a lambda has none
        every = (*written.posonlyargs, *written.args, *written.kwonlyargs)
        return {each.arg: ast.unparse(each.annotation) for each in every if each.annotation is not None}
    return {}
