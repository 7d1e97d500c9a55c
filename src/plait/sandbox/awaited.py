"""How to find the awaited calls in a piece of code. They return an awaitable; all other calls block until the result.

`x = tool(...)` and `await tool(...)` look the same to the tool, so the call's place in the code decides. A call is
awaited when its value reaches an `await`, a `gather` (or a similar function), or the `return` of an `async def`:
directly, through a name, a container or a loop over one, or through a function of the same piece. This file uses only
`ast`, because the sandbox's worker also runs it.
"""

from __future__ import annotations

import ast

_TAKERS = "gather wait wait_for as_completed create_task ensure_future shield run run_until_complete"
TAKERS = frozenset(_TAKERS.split())
"""Functions of asyncio, or of a part of it, whose arguments are awaited."""

PASSING = frozenset({"list", "tuple", "set", "dict", "zip", "enumerate", "reversed", "sorted", "iter", "next"})
"""Functions whose value holds their arguments."""

HOLDING = frozenset({"values", "items", "pop", "popleft", "popitem", "get", "copy", "setdefault"})
"""Methods that return something that their object holds."""

KEEPING = frozenset({"append", "appendleft", "add", "extend", "insert", "setdefault", "update"})
"""Methods that add their arguments to their object."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
_Place = tuple[int, ...]
"""The blocks around a node, outermost first."""


def awaited_calls(code: str) -> set[tuple[int, int]]:
    """Return the places (`lineno`, `col_offset`) of the awaited calls in `code`; none if it cannot be parsed."""
    tree = parse(code)
    return awaited_in(tree) if tree is not None else set()


def parse(code: str) -> ast.Module | None:
    """Return the parsed code, or None if it cannot be parsed."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def returned_calls(tree: ast.Module) -> list[ast.Call]:
    """Return the calls whose result an `async def` returns directly."""
    found: list[ast.Call] = []
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, is_async = todo.pop()
        if isinstance(node, _FUNCTIONS):
            is_async = isinstance(node, ast.AsyncFunctionDef)
        elif is_async and isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            found.append(node.value)
        todo.extend((child, is_async) for child in ast.iter_child_nodes(node))
    return found


def awaited_in(tree: ast.Module) -> set[tuple[int, int]]:
    """Return the places of the awaited calls in parsed code."""
    finder = _Finder()
    finder.visit(tree)
    return finder.places()


class _Finder(ast.NodeVisitor):
    """Collect which values each name gets and which names are awaited; then follow the names."""

    def __init__(self) -> None:
        self.scopes: list[ast.AST] = []
        self.place: _Place = ()
        self.order = 0
        # By scope and name: when, in which blocks, what, and whether it replaces the earlier value.
        self.stored: dict[tuple[int, str], list[tuple[int, _Place, ast.AST, bool]]] = {}
        self.sinks: list[tuple[ast.AST, list[ast.AST], int, _Place]] = []
        self.returned: dict[str, list[tuple[ast.AST, list[ast.AST], int, _Place]]] = {}
        self.found: set[tuple[int, int]] = set()
        self.seen: set[int] = set()

    def visit(self, node: ast.AST) -> None:
        self.order += 1
        opens = isinstance(node, (*_FUNCTIONS, ast.Module, ast.ClassDef))
        if opens:
            self.scopes.append(node)
        self._note(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                self.visit(value)
            elif isinstance(value, list):
                block = name in ("body", "orelse", "finalbody", "handlers", "cases")
                if block:
                    self.place += (id(value),)
                for one in value:
                    if isinstance(one, ast.AST):
                        self.visit(one)
                if block:
                    self.place = self.place[:-1]
        if opens:
            self.scopes.pop()

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._store(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._store(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._store(node.target, node.value, replaces=False)
        elif isinstance(node, _LOOPS):
            self._store(node.target, node.iter)
        elif isinstance(node, ast.Await):
            self._sink(node.value)
        elif isinstance(node, ast.AsyncFor):
            self._sink(node.iter)
        elif isinstance(node, ast.Return) and node.value is not None:
            function = next((s for s in reversed(self.scopes) if isinstance(s, _FUNCTIONS)), None)
            if isinstance(function, ast.AsyncFunctionDef):
                # Only a direct call: a value from a name may have been used as a plain value before.
                if isinstance(node.value, ast.Call):
                    self._sink(node.value)
            elif isinstance(function, ast.FunctionDef):
                here = (node.value, list(self.scopes), self.order, self.place)
                self.returned.setdefault(function.name, []).append(here)
        elif isinstance(node, ast.Call):
            for argument in node.args[: _takes(node.func)]:
                self._sink(argument)
            if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPING:
                for argument in node.args:
                    self._store(node.func.value, argument, replaces=False)

    def _sink(self, node: ast.AST) -> None:
        self.sinks.append((node, list(self.scopes), self.order, self.place))

    def _store(self, target: ast.AST, value: ast.AST, replaces: bool = True) -> None:
        if isinstance(target, ast.Name):
            self.stored.setdefault((id(self.scopes[-1]), target.id), []).append(
                (self.order, self.place, value, replaces)
            )
        elif isinstance(target, (ast.Tuple, ast.List)):
            values: list[ast.expr] | None = None
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                values = value.elts
            for at, one in enumerate(target.elts):
                self._store(one, values[at] if values else value, replaces)
        elif isinstance(target, (ast.Subscript, ast.Starred)):
            self._store(target.value, value, replaces=False)

    def places(self) -> set[tuple[int, int]]:
        for node, scopes, order, place in self.sinks:
            self._mark(node, scopes, order, place)
        return self.found

    def _mark(self, node: ast.AST, scopes: list[ast.AST], order: int, place: _Place) -> None:
        """Mark the calls that the awaited `node` gets its value from."""
        if isinstance(node, ast.Name):
            # What the name may hold here: values assigned to it and not surely replaced.
            depth = next((i for i in reversed(range(len(scopes))) if (id(scopes[i]), node.id) in self.stored), -1)
            stores = self.stored[id(scopes[depth]), node.id] if depth >= 0 else []
            # A comprehension's loop comes after its element. A loop's body may use values that its end assigns.
            before = [s for s in stores if s[0] < order and s[3] and place[: len(s[1])] == s[1]]
            since = max((s[0] for s in before), default=0)
            for when, where, value, _ in stores:
                if when >= since and id(value) not in self.seen:
                    self._mark(value, scopes[: depth + 1], when, where)
            return
        if id(node) in self.seen:
            return
        self.seen.add(id(node))
        inner: list[ast.AST] = []
        if isinstance(node, ast.Call):
            self.found.add((node.lineno, node.col_offset))
            if isinstance(node.func, ast.Name):
                if node.func.id in PASSING:
                    inner = [*node.args]
                for there in self.returned.get(node.func.id, []):
                    self._mark(*there)
            elif isinstance(node.func, ast.Attribute) and node.func.attr in HOLDING:
                inner = [node.func.value, *node.args]
        elif isinstance(node, (ast.Starred, ast.Subscript, ast.NamedExpr, ast.DictComp)):
            inner = [node.value]
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            inner = [node.elt]
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            inner = [*node.elts]
        elif isinstance(node, ast.Dict):
            inner = [*node.values]
        elif isinstance(node, ast.IfExp):
            inner = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            inner = [*node.values]
        elif isinstance(node, ast.BinOp):
            inner = [node.left, node.right]
        for one in inner:
            self._mark(one, scopes, order, place)


def _takes(function: ast.AST) -> int | None:
    """Return how many of a call's arguments are awaited, counted from the first; None for all."""
    if isinstance(function, ast.Name):
        known, name = function.id in TAKERS - {"run", "wait"}, function.id
    elif isinstance(function, ast.Attribute):
        of_asyncio = isinstance(function.value, ast.Name) and function.value.id == "asyncio"
        known, name = function.attr in TAKERS and (of_asyncio or function.attr == "create_task"), function.attr
    else:
        return 0
    return None if known and name == "gather" else int(known)
