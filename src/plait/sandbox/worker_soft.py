"""How code that is not strict about `await` runs correctly. Stdlib only."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from plait.sandbox.worker_calls import Ready

SOFT, SOFT_RETURN = " await", " return"
"""The functions that awaited values pass through. No code can write their names."""


class Soft(ast.NodeTransformer):
    """Make `await` of a plain value return the value, and `return tool(...)` in an `async def` return its result."""

    def __init__(self, awaited: set[tuple[int, int]]) -> None:
        self.awaited = awaited
        self.is_async = False

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node, True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node, False)

    def _function(self, node: ast.AST, is_async: bool) -> ast.AST:
        before, self.is_async = self.is_async, is_async
        self.generic_visit(node)
        self.is_async = before
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        node.value = self._call(SOFT, node.value)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        call = node.value
        self.generic_visit(node)
        if self.is_async and isinstance(call, ast.Call) and (call.lineno, call.col_offset) in self.awaited:
            node.value = ast.copy_location(ast.Await(self._call(SOFT_RETURN, call)), call)
        return node

    def _call(self, name: str, value: ast.expr) -> ast.expr:
        function = ast.copy_location(ast.Name(name, ast.Load()), value)
        return ast.copy_location(ast.Call(function, [value], []), value)


def soft(value: Any) -> Any:
    return value if inspect.isawaitable(value) else Ready(value)


def soft_return(value: Any) -> Any:
    return value if inspect.iscoroutine(value) else Ready(value)
