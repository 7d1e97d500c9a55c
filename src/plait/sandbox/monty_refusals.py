"""Checks for Python that Monty would silently run differently from CPython. Plait refuses it before the piece runs.

Monty evaluates a generator expression at once, so it would make calls that Python makes later or never. That is safe
only if the expression is used up at once, as in `list(...)`. Monty never calls some methods of classes.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from plait.sandbox.awaited import parse

_IGNORED = """
    __ne__ __bool__ __len__ __lt__ __le__ __gt__ __ge__ __new__ __del__ __format__ __reversed__ __missing__
    __setattr__ __delattr__ __getattr__ __getattribute__ __init_subclass__ __set_name__ __get__ __set__ __delete__
    __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__ __ilshift__
    __irshift__ __imatmul__
"""
IGNORED = frozenset(_IGNORED.split())
"""Methods that a class may define and Monty never calls."""

USES_ALL = frozenset({"list", "tuple", "sorted", "join"})
"""Functions that first make a list of their argument."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def find_unsupported(code: str, earlier: Iterable[str], tools: frozenset[str]) -> tuple[int, str] | None:
    """Return the line that Monty would run differently, and why; None for none. `earlier`: the earlier pieces."""
    if "__" not in code and " for " not in code and "map" not in code:
        return None
    tree = parse(code)
    if tree is None:
        return None
    functions = _functions([tree, *filter(None, map(parse, earlier))])
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, _Function) and not isinstance(method, ast.Lambda) and method.name in IGNORED:
                    return method.lineno, f"This Python never calls {method.name}() of a class."
        elif isinstance(node, ast.GeneratorExp) and not _used_up(node, parents):
            later = [node.elt, *(each for one in node.generators for each in one.ifs)]
            later += [one.iter for one in node.generators[1:]]
            if any(_calls_out(each, functions, tools, set()) for each in later):
                return node.lineno, (
                    "This Python would make all calls of a generator expression at once. Use a list in [] if all of "
                    "them are wanted, else a for loop with break."
                )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("map", "filter"):
            called = node.args[0] if node.args else None
            calls = isinstance(called, ast.Name) and called.id in tools and called.id not in functions
            if calls and not _used_up(node, parents):
                name = node.func.id
                return (
                    node.lineno,
                    f"This Python would make all calls of {name}() at once. Use a list in [], or a for loop.",
                )
    return None


def _functions(trees: Iterable[ast.Module]) -> dict[str, list[ast.AST]]:
    """Return the functions, methods, classes and lambdas defined under each name."""
    found: dict[str, list[ast.AST]] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def _used_up(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents.get(node)
    if isinstance(parent, ast.Starred):
        return True
    if not isinstance(parent, ast.Call) or parent.args[:1] != [node]:
        return False
    function = parent.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    return name in USES_ALL


def _calls_out(node: ast.AST, functions: dict[str, list[ast.AST]], tools: frozenset[str], seen: set[str]) -> bool:
    """Return whether the code calls a tool, or something that may call one."""
    for call in _calls(node):
        if isinstance(call, ast.Name):
            name = call.id
            if name not in functions and (name in tools or not hasattr(builtins, name)):
                return True
        elif isinstance(call, ast.Attribute):
            name = call.attr
        else:
            return True
        if name not in seen:
            seen.add(name)
            if any(_calls_out(body, functions, tools, seen) for body in functions.get(name, ())):
                return True
    return False


def _calls(node: ast.AST) -> Iterator[ast.expr]:
    return (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
