"""What the model is shown of its code's end: what was printed, the error, and a hint by the kind of error.

The words are templates; here is decided which of them fits.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from msgspec import structs

from plait.core import CodeError, Kit, Observation
from plait.formats.escape import Escape

NAMES = ("asyncio", "json", "math", "re", "date", "datetime", "time", "timedelta")
"""What a session has without import; `time` is the class of `datetime`."""

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
_CLASSES = ("datetime", "time")
"""Modules whose names are classes in a session."""
_QUOTED = re.compile(r"'([^']{1,100})'")
_NEVER_RAN = ("syntax", "import", "lines", "lacking")


def kind_of(error: CodeError, seen: Observation | None) -> str:
    """The word of the hint for an error; "" for none. `seen`: what the last call brought, where it had
    trouble."""
    if error.limit:
        return "limit"
    # The code may have caught what a call raised, and failed later of its own.
    if seen is not None and seen.trouble != "unknown_tool" and error.message.strip("\"' ") in seen.text:
        return {"bad_input": "arguments", "refused": "refused"}.get(seen.trouble, "call")
    if error.type == "AttributeError" and _OF_CLASS.search(error.message):
        return "classes"
    if error.type in ("TypeError", "ValueError") and _OF_TEXT.search(error.message):
        return "text"
    return _KINDS.get(error.type, "")


def ran_before(error: CodeError, hint: str, called: int) -> bool:
    """Something of the code ran before the error, and its variables are there; after the limits of time and memory
    they are not. `called` counts its calls that gave a result."""
    return hint not in _NEVER_RAN and error.limit not in ("time", "memory") and (error.line != 1 or called > 0)


def unknown_name(error: CodeError) -> str:
    """The name that a NameError is about."""
    match = _QUOTED.search(error.message)
    return match[1] if match else ""


def assigned(code: str, error: CodeError | None) -> set[str]:
    """The names that a piece of code gave a value to, before the line of its error."""
    tree = _tree(code)
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name)) if tree is not None else ()
    stored = (node for node in names if isinstance(node.ctx, ast.Store))
    return {node.id for node in stored if error is None or node.lineno < error.line}


def meant(wanted: str, names: Iterable[str]) -> str:
    """The one of those names that is written nearly like that, "" for none."""
    return next(iter(get_close_matches(wanted, sorted(names), n=1, cutoff=0.8)), "")


def observed(
    kit: Kit, escape: Escape, output: str, error: CodeError | None, hint: str, notes: list[str], **values: Any
) -> str:
    """The observation's text. What it shows of data is escaped."""
    there: dict[str, Any] = {
        "near": "",
        "found": "",
        "meant": "",
        "wanted": "",
        "signature": "",
        "lost": False,
        "limit": error.limit if error else "",
        "there": "",
        "most": 0,
        "names": ", ".join(NAMES),
        "search": kit.search,
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
    text = kit.prompt("observation", output=escape(output.rstrip()), error=error, hint=hint, notes=said, **there)
    return text.rstrip()


def too_long(code: str, most: int) -> CodeError | None:
    """Why an action of too many lines is not run."""
    lines = code.count("\n") + 1
    if most and lines > most:
        return CodeError("TooLong", f"the action has {lines} lines, and {most} are allowed")
    return None


def imports(code: str) -> tuple[CodeError, str] | None:
    """The first import in a piece of code, as the error it is, and whether all that it imports is there already.

    That is "" where it isn't, "classes" where a module is imported whose name is a class here, else "modules".
    """
    if "import" not in code:
        return None
    if (tree := _tree(code)) is None:
        return None
    found = [node for node in ast.walk(tree) if _importing(node)]
    if not found:
        return None
    first = min(found, key=lambda node: getattr(node, "lineno", 0))
    line = getattr(first, "lineno", 0)
    source = code.split("\n")[line - 1].strip() if line else ""
    modules = [module for node in found for module in _modules(node)]
    there = "modules" if all(module.partition(".")[0] in NAMES for module in modules) else ""
    if there and any(isinstance(node, ast.Import) and set(_modules(node)) & set(_CLASSES) for node in found):
        there = "classes"
    return CodeError("ImportError", "import is not allowed", line, source), there


def _tree(code: str) -> ast.Module | None:
    """A piece of code, parsed; None where it can't be: what is wrong with it the sandbox says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _importing(node: ast.AST) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom)) or (isinstance(node, ast.Name) and node.id == "__import__")


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [""]
