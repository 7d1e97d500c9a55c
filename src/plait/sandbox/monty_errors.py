"""Errors in Monty as a `CodeError`: type, message, line in the piece, and the limit if it was one."""

from __future__ import annotations

import re
from typing import Any

from plait.core.code import CodeError, CodeLimit, CodeLimits
from plait.sandbox.monty_values import plain

UNDONE = "Names are as they were before this piece."

MESSAGE_CHARS = 4000
"""Maximum length of an exception's message."""

SOURCE_CHARS = 1000
"""Maximum length of a line of code that is shown."""

_LACKS = re.compile(r"The monty syntax parser does not yet support (?P<what>.*)", re.DOTALL)
_INSTEAD = {
    "inheritance": "Write a plain class, a function, or a dict; raise ValueError for errors of your own.",
    "yield": "Build a list and return it.",
    "'del'": "Assign None instead, or pop() the item.",
    "async with": "Call the functions without a context manager.",
    "decorator": "Write a plain method or function.",
    "suspend": "Call the tool in a for loop or a comprehension, not from a key function, filter, or a mapped lambda.",
}


def code_error(problem: Any, code: str, filename: str, limits: CodeLimits, undone: bool = False) -> CodeError:
    """Turn a `MontyRuntimeError` or `MontySyntaxError` of the piece `code` into an error. Monty calls it `filename`.

    The line is that of the innermost frame inside the piece. If a function of an earlier piece failed, it is the line
    of the call.
    """
    kind, _, message = problem.display("type-msg").partition(": ")
    kind, message = kind.rpartition(".")[2], cut(plain(message), MESSAGE_CHARS)
    frames = [frame for frame in problem.traceback() if frame.filename == filename]
    line = frames[-1].line if frames else 0
    limit = limit_of(problem, kind, message)
    if limit == "time":
        message = f"it ran longer than {limits.seconds:g} s"
    elif limit == "memory":
        message = f"it took more than {limits.memory_mb} MB of memory"
    elif limit == "recursion":
        message = f"more than {limits.recursion} calls stood open at once"
    else:
        message = _clear(kind, message)
    if undone:
        message = f"{message}. {UNDONE}"
    return CodeError(kind, message, line, source_line(code, line), limit)


def limit_of(problem: Any, kind: str, message: str) -> CodeLimit:
    """Return the limit that an exception reports; "" for none."""
    if kind == "TimeoutError" and not problem.traceback() and "time limit exceeded" in message:
        return "time"
    if kind == "MemoryError" and ("memory limit" in message or not message):
        return "memory"
    return "recursion" if kind == "RecursionError" else ""


def source_line(code: str, line: int) -> str:
    """Return a line of the code by its number, counted from 1; "" if it does not exist."""
    lines = code.splitlines()
    return cut(lines[line - 1], SOURCE_CHARS) if 0 < line <= len(lines) else ""


def cut(text: str, chars: int) -> str:
    """Cut a text that is too long, and say so."""
    return text if len(text) <= chars else f"{text[:chars]} [... cut: {len(text) - chars} more characters]"


def _clear(kind: str, message: str) -> str:
    lacks = _LACKS.match(message)
    if lacks:
        message = f"This Python does not have {lacks['what']}."
    elif kind == "NotImplementedError" and "cannot suspend" in message:
        message = f"A tool can't be called from here ({message})."
    elif kind == "TypeError" and message.endswith("can't be awaited"):
        return f"{message} (what a tool gave is awaited where the tool is called, or not at all)"
    if kind == "NotImplementedError":
        hint = next((hint for word, hint in _INSTEAD.items() if word in message), "")
        return f"{message} {hint}".strip()
    return message
