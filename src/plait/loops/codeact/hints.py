"""Builds the observation of code that ended: its output, the error, and a hint by the kind of error.

The texts are templates; this module selects among them.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from msgspec import structs

from plait.core import CodeError, LoopContext, Observation
from plait.loops.escape import Escape

NAMES = ("asyncio", "json", "math", "re", "date", "datetime", "time", "timedelta")
"""Names that a session has without import; `time` is the class of `datetime`."""

_MODULES = """
__future__ abc array ast asyncio base64 binascii bisect calendar cmath collections colorsys contextlib copy csv
dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html io ipaddress itertools
json keyword math numbers operator pprint random re secrets statistics string struct textwrap time timeit traceback
types typing unicodedata urllib.parse uuid warnings weakref xml.etree.ElementTree zlib
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
_OF_MODULE = re.compile(r"module '(datetime|time)' has no attribute")
_QUOTED = re.compile(r"'([^']{1,100})'")
_NEVER_RAN = ("syntax", "lines", "lacking")


def hint_of(error: CodeError, seen: Observation | None) -> str:
    """Return the name of the hint for an error, or "". `seen`: the failed result of the last call."""
    if error.limit:
        return "limit"
    # The code may have caught a call's exception, and failed later by itself.
    if seen is not None and seen.trouble != "unknown_tool" and error.message.strip("\"' ") in seen.text:
        return {"bad_input": "arguments", "refused": "refused"}.get(seen.trouble, "call")
    if error.type == "AttributeError" and _OF_CLASS.search(error.message):
        return "classes"
    if _OF_MODULE.search(error.message):
        return "module"
    if error.type in ("TypeError", "ValueError") and _OF_TEXT.search(error.message):
        return "text"
    return _KINDS.get(error.type, "")


def ran_before(error: CodeError, hint: str, called: int) -> bool:
    """Return whether some code ran before the error, and its variables exist; they do not after limits of time and
    memory. `called` counts its calls that gave a result."""
    return hint not in _NEVER_RAN and error.limit not in ("time", "memory") and (error.line != 1 or called > 0)


def unknown_name(error: CodeError) -> str:
    match = _QUOTED.search(error.message)
    return match[1] if match else ""


def assigned_names(code: str, error: CodeError | None) -> set[str]:
    """Return the names that a piece of code assigned before the line of its error."""
    tree = _tree(code)
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name)) if tree is not None else ()
    stored = (node for node in names if isinstance(node.ctx, ast.Store))
    return {node.id for node in stored if error is None or node.lineno < error.line}


def find_similar_name(wanted: str, names: Iterable[str]) -> str:
    """Return the one of those names with almost the same spelling, or ""."""
    return next(iter(get_close_matches(wanted, sorted(names), n=1, cutoff=0.8)), "")


def render_observation(
    context: LoopContext,
    escape: Escape,
    output: str,
    error: CodeError | None,
    hint: str,
    notes: list[str],
    **values: Any,
) -> str:
    """Return the observation's text. Data in it is escaped."""
    there: dict[str, Any] = {
        "near": "",
        "found": "",
        "meant": "",
        "wanted": "",
        "signature": "",
        "lost": False,
        "limit": error.limit if error else "",
        "refused": "",
        "module": "".join(_OF_MODULE.findall(error.message)[:1]) if error else "",
        "most": 0,
        "names": ", ".join(NAMES),
        "search": context.search,
        "kept": False,
        "called": 0,
        "brought": [],
        "others": "",
        "number": error is None or not error.message.startswith("could not convert string"),
    }
    if error is not None:
        message, source = escape(error.message, inline=True), escape(error.source, inline=True)
        error = structs.replace(error, message=message, source=source)
    there |= values
    there |= {name: escape(there[name], inline=True) for name in ("near", "wanted", "meant", "signature")}
    there["found"] = escape(there["found"])
    there["brought"] = [(escape(call, inline=True), escape(text, inline=True)) for call, text in there["brought"]]
    said = [escape(note, inline=True) for note in notes]
    text = context.prompt("observation", output=escape(output.rstrip()), error=error, hint=hint, notes=said, **there)
    return text.rstrip()


def too_long(code: str, most: int) -> CodeError | None:
    """Return the error for an action of too many lines."""
    lines = code.count("\n") + 1
    if most and lines > most:
        return CodeError("TooLong", f"the action has {lines} lines, and {most} are allowed")
    return None


def find_forbidden_import(code: str, modules: frozenset[str] = MODULES) -> tuple[CodeError, str] | None:
    """Return the first import of another module than these in a piece of code as an error, with the module's name."""
    if "import" not in code:
        return None
    if (tree := _tree(code)) is None:
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


def _tree(code: str) -> ast.Module | None:
    """Parse a piece of code; return None for a syntax error, which the sandbox reports."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _modules(node: ast.AST, modules: frozenset[str]) -> list[str]:
    """Return the modules that a node imports, each with the names taken from it."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        return [module] if _allowed(module, modules) else [f"{module}.{alias.name}" for alias in node.names]
    return ["__import__"] if isinstance(node, ast.Name) and node.id == "__import__" else []
