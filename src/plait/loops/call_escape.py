"""Escapes calls in data: puts one backslash at each place where a reader of calls could begin.

The places come from the readers: the table of notations (`call_notations.py`), and the keys of objects. Each place is
judged by itself, never by the text around it, so every part of the escaped text is safe. Names and values keep their
letters: `search(q="x")` becomes `search\\(q="x")`, `"tool": "x"` becomes `"tool"\\: "x"`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from operator import attrgetter

from plait.core import ToolSpec
from plait.core.loose_json import PREFIXES
from plait.loops.call_notations import INPUT_TAG, LIST_KEYS, MARKS, NOTATIONS, SURE_TAGS, find_tool, fold, folded_names
from plait.loops.call_objects import SURE_KEYS, plain_names
from plait.loops.label_scan import TURN_ENDS
from plait.loops.vocabulary import INPUT_KEYS, NAME_KEYS, either

_FENCE = re.compile(r"`{3,}+")
# Quotes and blanks of JSON, also of JSON within a string: `{\"name\": ...}`.
_QUOTE = "\\\\{0,8}+[\"'“”„‘’]"
_GAP = r"(?:\s|\\[nrt])*+"
# A comment before the colon, or a value that is not simply text, could hide what a key is for.
_COMMENT, _ODD_VALUE = r"/[/*]|#", rf"/[/*]|[#(<]|\"{{3}}|'{{3}}|[{PREFIXES}]{{1,2}}[\"']"
# A key of plain letters in JSON escapes. Nobody but an attacker writes such a key.
_HIDDEN_KEY = r"[^\"'“”„‘’\n\\]{0,20}(?:\\u00[2-7][0-9a-fA-F][^\"'“”„‘’\n\\]{0,20}){1,20}"
_NAME_KEY = either((*NAME_KEYS, "function"))
# A key that may name a tool, and the name. There is no `value` where something hides it.
_NAMED_OBJECT = re.compile(
    rf"(?:{_QUOTE}(?:{_NAME_KEY}){_QUOTE}|\b(?:{_NAME_KEY})){_GAP}(?=:{_GAP}(?:{_ODD_VALUE}"
    rf"|{_QUOTE}(?:\s|\\[nrtf])*+(?P<value>(?:[^\"'“”„‘’\\]|\\[^\"'“”„‘’\\]){{0,100}}))|{_COMMENT})"
)
_TOOL_KEY = re.compile(
    rf"(?:{_QUOTE}(?P<quoted>[^\"'“”„‘’\n]{{1,100}}?){_QUOTE}|\{{\s*+(?P<bare>[A-Za-z_]\w{{0,100}}+)){_GAP}"
    rf"(?=:{_GAP}(?:[\[{{]|null\b|None\b|{_ODD_VALUE})|{_COMMENT})"
)
_STRINGS = re.compile(
    rf"(?:{_QUOTE}(?:{either(LIST_KEYS)}){_QUOTE}|\b(?:{either(LIST_KEYS)})){_GAP}"
    rf"(?=:{_GAP}\[{_GAP}[(<\"'“”„‘’{PREFIXES}])"
)
"""A list of calls that are strings."""
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[nrtf])")
_MARKS = re.compile("|".join((*MARKS.values(), TURN_ENDS)))
_SIGNS = {"read_named": "{<", "read_python": "(", "read_tags": "<"}
"""Signs of which each notation that names a tool has one."""
_OPENINGS = tuple(
    (re.compile(rf"(?<!\w)(?P<arm>{each.opening.pattern.partition('(?P<arm>')[2]}", each.opening.flags), each.read)
    for each in NOTATIONS
    if each.read in _SIGNS
)


def escape_objects(text: str, keys: Sequence[str]) -> str:
    """Escape fences, and the colon behind each of `keys` in data that has objects."""
    text = _FENCE.sub(lambda fence: "\\`" * len(fence[0]), text) if "```" in text else text
    return _without_keys(text, keys)


def escape_known_calls(text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
    """Escape calls in data that may name one of `tools`. Other data stays unchanged."""
    return escape_calls(text, tools) if names_in(text, tools) else text


def escape_calls(text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
    """Escape calls of `tools` in all notations, and objects and tags that are calls of any tool."""
    names = names_in(text, tools)
    text = _MARKS.sub(lambda mark: f"{mark[0][0]}\\{mark[0][1:]}", text)
    if "{" in text:
        text = _without_objects(text, names)
    if not names and "<" not in text:
        return text
    sure = any(map(text.__contains__, SURE_TAGS)) or INPUT_TAG.search(text) is not None
    for opening, read in _OPENINGS:
        if (names or (sure and read == "read_tags")) and any(map(text.__contains__, _SIGNS[read])):
            text = opening.sub(partial(_arm, read, names), text)
    return text


def names_in(text: str, tools: Sequence[ToolSpec]) -> tuple[str, ...]:
    """Return the names of the tools, none if the text names no tool, as most data does."""
    names, plain = tuple(map(attrgetter("name"), tools)), fold(text)
    if "\\u00" in text:  # it may hide a name
        return names
    for name, word in _words(names):
        if name in plain and word.search(plain):
            return names
    return ()


@lru_cache(maxsize=64)
def _words(names: tuple[str, ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the folded names, each with its pattern as a whole word."""
    return tuple((each, re.compile(rf"(?<![^\W_]){re.escape(each)}(?![^\W_])")) for each in folded_names(names))


def _arm(read: str, names: tuple[str, ...], match: re.Match[str]) -> str:
    if not (find_tool(match["name"], names) or (read == "read_tags" and _is_sure(match))):
        return match[0]
    behind = match.end("arm") - match.start()
    return f"{match[0][:behind]}\\{match[0][behind:]}"


def _is_sure(tag: re.Match[str]) -> bool:
    return tag["tag"] in SURE_TAGS or INPUT_TAG.match(tag.string, tag.end()) is not None


def _without_objects(text: str, names: tuple[str, ...]) -> str:
    unknown, known = False, {name.lower() for name in names}

    def named(key: re.Match[str]) -> str:
        nonlocal unknown
        if key["value"] is None or known.intersection(plain_names(_ESCAPE.sub(_letter, key["value"]))):
            return _behind(key)
        unknown = True
        return key[0]

    text = _without_keys(text, SURE_KEYS)
    if any(map(text.__contains__, LIST_KEYS)):
        text = _STRINGS.sub(_behind, text)
    if any(map(text.__contains__, (*NAME_KEYS, "function"))):
        text = _NAMED_OBJECT.sub(named, text)
    if unknown:  # with an input beside it, it is a call of an unknown tool
        text = _without_keys(text, INPUT_KEYS)
    if not names:
        return text
    return _TOOL_KEY.sub(lambda key: _behind(key) if find_tool(key["quoted"] or key["bare"], names) else key[0], text)


def _without_keys(text: str, keys: Sequence[str]) -> str:
    """Escape the colon behind each of these keys, in data that has objects."""
    if "{" not in text or not ("\\u00" in text or any(map(text.__contains__, keys))):
        return text
    return _keys(tuple(keys)).sub(_behind, text)


def _letter(escape: re.Match[str]) -> str:
    return chr(int(escape[1][1:], 16)) if len(escape[1]) > 1 else " "


def _behind(match: re.Match[str]) -> str:
    return f"{match[0]}\\"


@lru_cache(maxsize=16)
def _keys(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of these keys up to their colon, or to a comment before it."""
    words = either(keys)
    return re.compile(rf"{_QUOTE}(?:{words}|{_HIDDEN_KEY}){_QUOTE}{_GAP}(?=:|{_COMMENT})|\b(?:{words}){_GAP}(?=:)")
