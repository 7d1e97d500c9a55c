"""Inputs of calls between tags: a tag for each parameter, pairs of keys and values, JSON, or text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from plait.core import JSON
from plait.core.arguments import InvalidArguments, read_literal, read_structure
from plait.core.json_schema import types_of

FAMILY = r"(?:[a-z]{2,12}:|[|｜]\w{2,12}[|｜])?"
"""What a family of models puts before the names of its tags, such as `minimax:` and `｜DSML｜`."""
ARG_KEY = r"<(?:\w{1,20}_)?arg_key>"

_PARAMETER = rf"{FAMILY}(?:parameter|param|argument|arg)"
_FIELD = re.compile(
    rf"\s*+(?:<(?P<tag>{_PARAMETER})(?:=|\s+(?:name|key)=)[\"']?(?P<key>[\w.-]{{1,80}})[\"']?(?P<more>[^>\n]{{0,80}})>"
    rf"|{ARG_KEY}\s*(?P<first>[^<\s]{{1,80}})\s*</(?:\w{{1,20}}_)?arg_key>\s*+<(?P<second>(?:\w{{1,20}}_)?arg_value)>"
    r"|<(?P<child>[A-Za-z_][\w.-]{0,80})>)"
)
_NEXT = re.compile(rf"<{_PARAMETER}[= ]|</{FAMILY}(?:function|invoke)>|</{FAMILY}(?:\w{{1,20}}_)?tool_call>|\Z")


def read_fields(text: str, at: int, parameters: Mapping[str, Any]) -> tuple[dict[str, JSON], int, bool]:
    """Read `<parameter=city>Lyon</parameter>`, `<city>Lyon</city>` and the like from `at` on. Return the values by
    name, the end of the last, and whether it is closed: by its own tag, or by the next one."""
    given: dict[str, JSON] = {}
    others = False
    while (field := _FIELD.match(text, at)) is not None:
        name, closing = (
            field["key"] or field["first"] or field["child"],
            field["tag"] or field["second"] or field["child"],
        )
        known = parameters.get("properties")
        if field["child"] and (others or (known is not None and name not in known)):
            break  # something else, such as an invented result
        others |= not field["child"]
        start, stop = field.end(), text.find(f"</{closing}>", field.end())
        if field["tag"] and (other := _NEXT.search(text, start, stop if stop >= 0 else len(text))) is not None:
            stop = other.start() if other[0] else stop
        if stop < 0:
            return given, start, False
        is_json = 'string="false"' in (field["more"] or "")  # how DeepSeek marks JSON
        schema = {"type": "null"} if is_json else parameters.get("properties", {}).get(name)
        given[name] = _value(text[start:stop], schema, parameters)
        at = stop + len(closing) + 3 if text.startswith(f"</{closing}>", stop) else stop
    return given, at, True


def read_content(text: str, parameters: Mapping[str, Any]) -> JSON:
    """Read the content between two tags: JSON, a tag for each parameter, or text."""
    if (value := read_structure(text.strip())) is not None:
        return value
    given, end, _ = read_fields(text, 0, parameters)
    return given if given and not text[end:].strip() else text.strip() or None


def _value(text: str, schema: Any, root: Mapping[str, Any]) -> JSON:
    """Return the literal in a text, or the text without the line breaks beside its tags if the parameter may be one."""
    with suppress(InvalidArguments):
        literal = None if {"string", "any"} & types_of(schema, root) else read_literal(text, schema, root)
        if literal is not None:
            return literal[0]
    return text.removeprefix("\n").removesuffix("\n").strip(" \t") if "\n" not in text.strip() else text.strip("\n")
