"""Inputs of calls between tags: a tag for each parameter, pairs of keys and values, JSON, or text."""

from __future__ import annotations

import re

from plait.core import JSON
from plait.core.arguments import read_structure
from plait.core.loose_json import NotJson, read_value

FAMILY = r"(?:[a-z]{2,12}:|[|｜]\w{2,12}[|｜])?"
"""What a family of models puts before the names of its tags, such as `minimax:` and `｜DSML｜`."""
FUNCTION_END = re.compile(rf"</{FAMILY}(?:function|invoke)>")
ARG_KEY = r"<(?:\w{1,20}_)?arg_key>"

_WORD = rf"{FAMILY}(?:parameter|param|argument|arg)"
_PARAMETER = re.compile(rf"<{_WORD}(?:=|\s+(?:name|key)=)[\"']?([\w.-]{{1,80}})[\"']?([^>\n]{{0,80}})>")
_PARAMETER_END = re.compile(
    rf"(?P<own></{_WORD}>)|(?=<{_WORD}[= ])|</{FAMILY}(?:function|invoke)>|</{FAMILY}(?:\w{{1,20}}_)?tool_call>"
)
_PAIR = re.compile(rf"\s*{ARG_KEY}([^<\n]{{1,80}})</(?:\w{{1,20}}_)?arg_key>\s*<((?:\w{{1,20}}_)?arg_value)>")
_CHILD = re.compile(r"\s*<([A-Za-z_][\w.-]{0,80})>")
_BLANK = re.compile(r"\s*+")


def read_parameters(text: str, at: int) -> tuple[dict[str, JSON], int]:
    """Read `<parameter=city>Lyon</parameter>` and the like from `at` on; return the values and the end of the last."""
    given: dict[str, JSON] = {}
    blank = skip_blank(text, at)
    while (opening := _PARAMETER.match(text, blank)) is not None:
        close = _PARAMETER_END.search(text, opening.end())
        stop = close.start() if close else len(text)
        value = text[opening.end() : stop]
        # DeepSeek says so of a value that is JSON.
        given[opening[1]] = _json(value) if 'string="false"' in opening[2] else _value(value)
        at = close.end() if close and close["own"] else stop
        blank = skip_blank(text, at)
    return given, at


def read_pairs(text: str, at: int) -> tuple[dict[str, JSON], int]:
    """Read pairs of `<arg_key>` and `<arg_value>` from `at` on; return the values and the end of the last."""
    given: dict[str, JSON] = {}
    while (pair := _PAIR.match(text, at)) is not None:
        end = text.find(f"</{pair[2]}>", pair.end())
        stop = len(text) if end < 0 else end
        given[pair[1].strip()] = _value(text[pair.end() : stop])
        at = stop + len(pair[2]) + 3 if end >= 0 else stop
    return given, at


def read_content(text: str) -> JSON:
    """Read the content between two tags: JSON, a tag for each parameter, or text."""
    if (value := read_structure(text.strip())) is not None:
        return value
    given: dict[str, JSON] = {}
    at = 0
    while (child := _CHILD.match(text, at)) is not None:
        close = text.find(f"</{child[1]}>", child.end())
        if close < 0:
            break
        given[child[1]] = _value(text[child.end() : close])
        at = close + len(child[1]) + 3
    return given if given and not text[at:].strip() else text.strip() or None


def skip_blank(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too


def _value(text: str) -> str:
    """Return a parameter's text without the line breaks beside its tags. Binding knows its type."""
    return text.removeprefix("\n").removesuffix("\n").strip(" \t") if "\n" not in text.strip() else text.strip("\n")


def _json(text: str) -> JSON:
    try:
        found = read_value(text)
    except NotJson:
        return _value(text)
    return found.value if not text[found.end :].strip() else _value(text)
