"""Finds what the observation of code needs: the hint for an error, assigned names, forbidden imports."""

from __future__ import annotations

import ast
import re

from plait.core import CodeError, Observation
from plait.loops.codeact.blocks import parse_python

NAMES = ("asyncio", "json", "math", "re", "date", "datetime", "time", "timedelta")
"""Names that a session has without import; `time` is the class of `datetime`."""

_MODULES = """
__future__ abc array ast asyncio base64 binascii bisect calendar cmath collections colorsys contextlib copy csv
dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html io ipaddress itertools
json keyword math numbers operator pprint random re secrets statistics string struct textwrap time timeit traceback
types typing unicodedata urllib.parse uuid warnings weakref xml.etree.ElementTree zlib zoneinfo
"""
MODULES = frozenset(_MODULES.split())
"""Modules that code may import: they compute, and reach nothing outside. The sandbox `monty` has some of them."""

_KINDS = {
    "NameError": "name",
    "UnboundLocalError": "name",
    "KeyError": "key",
    "IndexError": "key",
    "AttributeError": "attribute",
    "SyntaxError": "syntax",
    "IndentationError": "syntax",
    "TabError": "syntax",
    "NotImplementedError": "lacking",
    "ImportError": "import",
    "ModuleNotFoundError": "import",
}
_OF_TEXT = re.compile(r"\bstr\b|invalid literal for int|could not convert string")
_OF_CLASS = re.compile(r"type object '(datetime\.)?(datetime|date|time|timedelta)' has no attribute")
OF_MODULE = re.compile(r"module '(datetime|time)' has no attribute")
NEVER_RAN = ("syntax", "lines", "lacking")
"""The hints about code of which nothing ran."""


def hint_of(error: CodeError, seen: Observation | None) -> str:
    """Return the name of the hint for an error, or "". `seen`: the failed result of the last call."""
    if error.limit:
        return "limit"
    # The code may have caught a call's exception, and failed later by itself.
    if seen is not None and seen.trouble != "unknown_tool" and error.message.strip("\"' ") in seen.text:
        return {"bad_input": "arguments", "refused": "refused"}.get(seen.trouble, "call")
    if error.type == "AttributeError" and _OF_CLASS.search(error.message):
        return "classes"
    if OF_MODULE.search(error.message):
        return "module"
    if error.type in ("TypeError", "ValueError") and _OF_TEXT.search(error.message):
        return "text"
    return _KINDS.get(error.type, "")


def assigned_names(code: str, error: CodeError | None) -> set[str]:
    """Return the names that a piece of code assigned before the line of its error."""
    tree = parse_python(code)
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name)) if tree is not None else ()
    stored = (node for node in names if isinstance(node.ctx, ast.Store))
    return {node.id for node in stored if error is None or node.lineno < error.line}


def find_forbidden_import(code: str, modules: frozenset[str] = MODULES) -> tuple[CodeError, str] | None:
    """Return the first import of another module than these in a piece of code as an error, with the module's name."""
    if "import" not in code or (tree := parse_python(code)) is None:
        return None
    found = [(node, name) for node in ast.walk(tree) for name in _modules(node, modules) if not _allowed(name, modules)]
    if not found:
        return None
    first, name = min(found, key=lambda each: getattr(each[0], "lineno", 0))
    line = getattr(first, "lineno", 0)
    source = code.split("\n")[line - 1].strip() if line else ""
    return CodeError("ImportError", "this import is not allowed", line, source), name


def _allowed(name: str, modules: frozenset[str]) -> bool:
    """Return whether the module, or one that contains it, may be imported."""
    return name in modules or ("." in name and _allowed(name.rpartition(".")[0], modules))


def _modules(node: ast.AST, modules: frozenset[str]) -> list[str]:
    """Return the modules that a node imports, each with the names taken from it."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        return [module] if _allowed(module, modules) else [f"{module}.{alias.name}" for alias in node.names]
    return ["__import__"] if isinstance(node, ast.Name) and node.id == "__import__" else []
