"""A loop with its options as one word, such as `react(dialect=lines)`: written, and read back."""

from __future__ import annotations

import re
from typing import Any

from plait.core import Strategy
from plait.core.errors import UsageError
from plait.strategies.registry import make, options_of

_CALL = re.compile(r"([A-Za-z_][\w.-]*)(?:\((.*)\))?", re.DOTALL)


def loop_from(word: str) -> Strategy:
    """The loop of a word such as `react` or `react(dialect=lines,constrain=true)`.

    Raises `UsageError` for a word that is none, and for a loop, an option or a value that there is not.
    """
    name, options = parts_of(word)
    return make(name, options)


def parts_of(word: str) -> tuple[str, dict[str, str]]:
    """A word's name and its options as text; whether there is such a loop is not looked at. Raises `UsageError`."""
    found = _CALL.fullmatch(word.strip())
    if found is None:
        raise UsageError(f"{word!r} names no loop.", hint="Write react, or with options react(dialect=lines).")
    options: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in (found[2] or "").split(","))):
        name, sign, value = part.partition("=")
        if not sign:
            raise UsageError(f"{word!r}: {part!r} is no option.", hint="Write react(dialect=lines).")
        options[name.strip()] = value.strip()
    return found[1], options


def word_of(loop: Strategy) -> str:
    """A loop as a word, with the options that are not its usual ones."""
    try:
        usual = options_of(make(loop.name))
    except UsageError:  # a loop given in Python, which has no word
        usual = {}
    own = {name: value for name, value in options_of(loop).items() if usual.get(name) != value}
    return f"{loop.name}({', '.join(f'{name}={_shown(value)}' for name, value in own.items())})" if own else loop.name


def parse_loops(text: str) -> list[str]:
    """The words of a list such as `react,react(dialect=lines,constrain=true),json`."""
    words, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            words.append(text[start:at])
            start = at + 1
    words.append(text[start:])
    return [word.strip() for word in words if word.strip()]


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
