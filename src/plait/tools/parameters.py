"""Finds the parameters that a call really takes, with their types: behind decorators, in a partial, of an object."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import textwrap
import typing
from collections.abc import Callable
from contextlib import suppress
from inspect import Parameter, Signature
from types import MethodType, SimpleNamespace
from typing import Any

_IN_ORDER = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_OTHERS = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}


def read_parameters(function: Callable[..., Any]) -> tuple[Signature, frozenset[str]]:
    """Return the signature of a call, with types in place of annotations, and the names that `functools.partial` bound.

    A bound parameter is not in the signature. A decorator with `functools.wraps` takes its own parameters and, where it
    has `*args` or `**kwargs`, those of its function. Raises `ValueError` for a function that does not show its
    parameters, and any error of a type hint that cannot be resolved.
    """
    if isinstance(function, functools.partial):
        inner, bound = read_parameters(function.func)

        def stand_in() -> None: ...

        stand_in.__signature__ = inner  # type: ignore[attr-defined]
        try:
            left = inspect.signature(functools.partial(stand_in, *function.args, **function.keywords))
        except ValueError:  # its text would show the values
            raise ValueError("functools.partial gives it arguments that it does not take") from None
        kept = {name: each for name, each in left.parameters.items() if name not in function.keywords}
        taken = (inner.parameters.keys() - kept.keys()) | function.keywords.keys()
        return left.replace(parameters=list(kept.values())), bound | taken
    if isinstance(function, MethodType):
        signature, bound = read_parameters(function.__func__)
        first, *others = signature.parameters.values()
        return signature.replace(parameters=others if first.kind in _IN_ORDER else [first, *others]), bound
    says_itself = "__signature__" in getattr(function, "__dict__", ())
    inside: Any = None if says_itself else getattr(function, "__wrapped__", None)
    call = type(function).__call__
    if inside is None and not isinstance(function, type) and hasattr(call, "__globals__"):
        return read_parameters(MethodType(call, function))
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except ValueError:  # written in C, as `functools.lru_cache`
        if inside is None:
            raise
        return read_parameters(inside)
    passed = {each.kind for each in own.parameters.values()} & _OTHERS if inside is not None else set()
    own = _with_types(function, own, passed)
    if not passed:
        return own, frozenset()
    inner, bound = read_parameters(inside)
    merged = {name: each for name, each in own.parameters.items() if each.kind not in passed}
    for name, each in inner.parameters.items():
        if each.kind in _IN_ORDER and Parameter.VAR_POSITIONAL not in passed:
            each = each.replace(kind=Parameter.KEYWORD_ONLY)
        if each.kind in {*_IN_ORDER, *passed} or (each.kind not in _OTHERS and Parameter.VAR_KEYWORD in passed):
            merged.setdefault(name, each)
    # `*args` alone passes values in order, and `functools.singledispatch` looks at the first one.
    positional = len(merged) if Parameter.VAR_KEYWORD not in passed else 1 if hasattr(function, "registry") else 0
    for name, each in list(merged.items())[:positional]:
        merged[name] = each.replace(kind=Parameter.POSITIONAL_ONLY) if each.kind in _IN_ORDER else each
    # Not validated: a required parameter may follow one with a default.
    parameters = sorted(merged.values(), key=lambda each: each.kind)
    made = Signature(parameters, return_annotation=inner.return_annotation, __validate_parameters__=False)
    return made, bound


def _with_types(function: Any, signature: Signature, passed: set[Any]) -> Signature:
    """Return the signature with types in place of annotations, which may be texts; of no parameter of a kind that is
    passed on."""
    inner: Any = inspect.unwrap(function)
    inner = inner.__init__ if isinstance(inner, type) else inner  # type: ignore[misc]
    written = {each.name: each.annotation for each in signature.parameters.values() if each.kind not in passed}
    written |= {"return": signature.return_annotation} if not passed else {}
    hints = _evaluate({name: hint for name, hint in written.items() if hint is not Parameter.empty}, function, inner)
    if inner is not function:  # `functools.wraps` replaced the annotations of the decorator by those of the function
        with suppress(Exception):  # there may be no source
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function.__code__))).body
            arguments = definition.args  # type: ignore[attr-defined]
            for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if each.annotation is not None:
                    hints |= _evaluate({each.arg: ast.unparse(each.annotation)}, function)
    parameters = [
        each.replace(annotation=hints.get(each.name, Parameter.empty)) for each in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=hints.get("return", Parameter.empty))


def _evaluate(written: dict[str, Any], *functions: Any) -> dict[str, Any]:
    """Return the types of annotations, by the names that the modules of these functions know. The last one wins."""
    seen = functools.reduce(operator.or_, (getattr(each, "__globals__", {}) for each in functions))
    return typing.get_type_hints(SimpleNamespace(__annotations__=written), seen, include_extras=True)
