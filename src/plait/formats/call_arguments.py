"""The arguments of a call written as in Python, `"Lyon", limit=3, $1`, as a tool's input.

A value is a JSON or Python literal, or a reference (`$1`, `${1}`), which becomes a text. What is no literal is
taken as text where that is clear: `$1 - $2` for a tool of one parameter, `EUR` between two commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from plait.core import JSON, ToolSpec
from plait.formats.base import Remark, Unreadable
from plait.formats.loose_json import MISSING, QUOTES, NotJson, read_value
from plait.formats.scan import repaired

KEYWORD = re.compile(r"\s*+([^\W\d]\w{0,63})\s*+=(?!=)\s*+")
# A bare reference, or what may hold its like and is none: an escaped character, a string.
_BARE = re.compile(r"""\\.|"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|(\$\{\d{1,6}\}|\$\d{1,6}(?![\w.]))""", re.S | re.A)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}


class Argument(Struct, frozen=True):
    """One argument as written: its keyword, if it has one, its value, and whether that stood there as a literal."""

    key: str
    value: JSON
    literal: bool


def parameters_of(tool: ToolSpec | None) -> list[str]:
    """The names of a tool's parameters, in order; none for a tool that is not known."""
    return list(tool.parameters.get("properties", {})) if tool is not None else []


def input_of(tool: ToolSpec | None, raw: str, commas: Sequence[int], remarks: list[Remark]) -> JSON:
    """The input that stands between a call's parentheses; `commas` are where `raw` is parted.

    None without arguments; a scalar for the one argument of a tool with one parameter; else an object by the
    parameters' names. Arguments of an unknown tool, or more than a tool has parameters, stay a list. Raises
    `Unreadable` for an argument that is given twice.
    """
    if not raw.strip():
        return None
    names = parameters_of(tool)
    notes: list[Remark] = []
    given = _arguments(raw, commas, names, notes)
    if len(names) == 1 and not all(each.literal for each in given):
        return _text_for_one(raw, names[0], remarks)
    remarks += notes
    placed = [each.value for each in given if not each.key]
    keyed = [each for each in given if each.key]
    if len(names) == 1 and len(given) == 1:
        return _one(given[0], names[0], tool, remarks)
    if len(names) == 1 and not keyed:
        return {names[0]: placed} if _takes_list(tool, names[0]) else _text_for_one(raw, names[0], remarks)
    if not keyed and (not names or len(placed) > len(names)):
        return placed[0] if len(placed) == 1 and not isinstance(placed[0], list | dict) else placed
    if len(given) == len(placed) == 1 and isinstance(placed[0], dict) and placed[0] and placed[0].keys() <= set(names):
        return placed[0]  # the arguments as one object
    return _by_name(placed, keyed, names)


def _arguments(raw: str, commas: Sequence[int], names: list[str], notes: list[Remark]) -> list[Argument]:
    ends = [*commas, len(raw)]
    starts = [0, *(comma + 1 for comma in commas)]
    pieces = [raw[start:end] for start, end in zip(starts, ends, strict=True)]
    if len(pieces) > 1 and not pieces[-1].strip():
        pieces.pop()
    found = []
    for piece in pieces:
        match = KEYWORD.match(piece)
        key = match[1] if match and (match[1] in names or len(names) != 1 or _literal(piece[match.end() :])) else ""
        found.append(_argument(key, piece[match.end() :] if match and key else piece, notes))
    return found


def _argument(key: str, text: str, notes: list[Remark]) -> Argument:
    text = text.strip()
    if (read := _literal(text)) is not None:
        value, repairs = read
        notes += [repaired(f"an argument had {what}") for what in repairs if what != QUOTES]
        return Argument(key, value, True)
    if len(text) > 1 and _QUOTES.get(text[0], "") == text[-1]:
        notes.append(repaired("quotes inside a text in quotes were kept"))
        return Argument(key, text.strip(text[0] + text[-1]) if text[:3] in ('"""', "'''") else text[1:-1], True)
    notes.append(repaired("a text without quotes was taken as it stands"))
    return Argument(key, text, False)


def _literal(text: str) -> tuple[JSON, tuple[str, ...]] | None:
    """The value if the whole text is one literal, and what was repaired in it."""
    text = _BARE.sub(lambda match: f'"{match[0]}"' if match[1] else match[0], text.strip())
    try:
        found = read_value(text)
    except NotJson:
        return None
    return (found.value, found.repairs) if found.end == len(text) and MISSING not in found.repairs else None


def _text_for_one(raw: str, name: str, remarks: list[Remark]) -> JSON:
    """All that stands between the parentheses, as the text for a tool's one parameter."""
    match = KEYWORD.match(raw)
    text = raw[match.end() :] if match and match[1] == name else raw
    remarks.append(repaired("a text without quotes was taken as it stands"))
    text = text.strip()
    # A string that was not closed.
    return text[1:] if text.startswith('"') and text.count('"') == 1 else text


def _one(given: Argument, name: str, tool: ToolSpec | None, remarks: list[Remark]) -> JSON:
    if given.key == name or (given.key and tool is not None and tool.parameters.get("additionalProperties")):
        return {given.key: given.value}
    if given.key:
        remarks.append(repaired(f"the argument {given.key!r} was taken for {name!r}"))
    return {name: given.value} if given.value is None or isinstance(given.value, list | dict) else given.value


def _takes_list(tool: ToolSpec | None, name: str) -> bool:
    kind: Any = tool.parameters["properties"][name] if tool is not None else None
    return isinstance(kind, dict) and kind.get("type") == "array"


def _by_name(placed: list[JSON], keyed: list[Argument], names: list[str]) -> JSON:
    if len(placed) > len(names):
        raise Unreadable(f"it gives {len(placed)} arguments without a name, but there are {len(names)} parameters")
    named = dict(zip(names, placed, strict=False))
    for each in keyed:
        if each.key in named:
            raise Unreadable(f"the argument '{each.key}' is given twice")
        named[each.key] = each.value
    return named
