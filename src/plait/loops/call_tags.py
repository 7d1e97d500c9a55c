"""Inputs of calls between tags: a tag for each parameter, pairs of keys and values, JSON, or text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from plait.core import JSON
from plait.core.arguments import read_literal, read_structure
from plait.core.json_schema import types_of

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


def read_parameters(text: str, at: int, parameters: Mapping[str, Any]) -> tuple[dict[str, JSON], int]:
    """Read `<parameter=city>Lyon</parameter>` and the like from `at` on; return the values and the end of the last."""
    given: dict[str, JSON] = {}
    blank = skip_blank(text, at)
    while (opening := _PARAMETER.match(text, blank)) is not None:
        close = _PARAMETER_END.search(text, opening.end())
        stop = close.start() if close else len(text)
        kind = {"type": "null"} if 'string="false"' in opening[2] else None  # how DeepSeek marks JSON
        given[opening[1]] = _value(text[opening.end() : stop], parameters, opening[1], kind)
        at = close.end() if close and close["own"] else stop
        blank = skip_blank(text, at)
    return given, at


def read_pairs(text: str, at: int, parameters: Mapping[str, Any]) -> tuple[dict[str, JSON], int]:
    """Read pairs of `<arg_key>` and `<arg_value>` from `at` on; return the values and the end of the last."""
    given: dict[str, JSON] = {}
    while (pair := _PAIR.match(text, at)) is not None:
        end = text.find(f"</{pair[2]}>", pair.end())
        stop = len(text) if end < 0 else end
        given[pair[1].strip()] = _value(text[pair.end() : stop], parameters, pair[1].strip())
        at = stop + len(pair[2]) + 3 if end >= 0 else stop
    return given, at


def read_content(text: str, parameters: Mapping[str, Any]) -> JSON:
    """Read the content between two tags: JSON, a tag for each parameter, or text."""
    if (value := read_structure(text.strip())) is not None:
        return value
    given: dict[str, JSON] = {}
    at = 0
    while (child := _CHILD.match(text, at)) is not None:
        close = text.find(f"</{child[1]}>", child.end())
        if close < 0:
            break
        given[child[1]] = _value(text[child.end() : close], parameters, child[1])
        at = close + len(child[1]) + 3
    return given if given and not text[at:].strip() else text.strip() or None


def skip_blank(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too


def _value(text: str, parameters: Mapping[str, Any], name: str, kind: Any = None) -> JSON:
    """Return a parameter's value: what the text says as a literal, unless the parameter may be a text, which it is
    without the line breaks beside its tags."""
    kind = kind or parameters.get("properties", {}).get(name)
    if not {"string", "any"} & types_of(kind, parameters) and (read := read_literal(text, kind, parameters)) is not None:
        return read[0]
    return text.removeprefix("\n").removesuffix("\n").strip(" \t") if "\n" not in text.strip() else text.strip("\n")
