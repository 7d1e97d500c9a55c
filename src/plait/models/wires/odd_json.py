"""JSON that is not clean: bytes that are not UTF-8, halves of surrogate pairs, NaN, control characters, padding. Pure.

What cannot be read is a lone surrogate until `mend`. So two pieces can still share a character, and in a text U+FFFD
stands for the rest.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from plait.core.loose_json import read_float

UNREADABLE = "\udcff"
"""Stands for a value or a character that cannot be read. As a byte that UTF-8 never has, it joins no other."""
MAX_DEPTH = 100
"""Maximum depth of a value: deeper ones cannot be stored."""
MAX_REST = 1000
"""Maximum number of lines to skip."""
_CONTROL = {sign: UNREADABLE for sign in range(32) if sign not in b"\t\n\r"}
_PADDING = re.compile(rf"[\s\ufeff{UNREADABLE}]*+")
_HALF = re.compile("[\ud800-\udfff]")
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


_decoder = msgspec.json.Decoder(float_hook=read_float)


def _read_float(word: str) -> float | str:
    return read_float(word) if math.isfinite(float(word)) else UNREADABLE


_raw_decode = json.JSONDecoder(strict=False, parse_float=_read_float, parse_constant=lambda _: UNREADABLE).raw_decode


def read_values(data: bytes | str) -> tuple[list[Any], str]:
    """Return the JSON values that stand one after the other in a text, and the lines that are none. From a line on that
    is broken JSON, nothing is read. Raises nothing."""
    try:
        return [_decoder.decode(data)], ""
    except (ValueError, RecursionError):  # msgspec.DecodeError and UnicodeError are a ValueError
        text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
    text = text.translate(_CONTROL)
    values: list[Any] = []
    rest: list[str] = []
    at = 0
    while (at := _PADDING.match(text, at).end()) < len(text):  # type: ignore[union-attr]  # it matches "" too
        try:
            value, at = _raw_decode(text, at)
            values.append(value)
        except (ValueError, RecursionError):
            end = text.find("\n", at) if len(rest) < MAX_REST else -1
            line = text[at : end if end > 0 else None]
            rest.append(text[at:] if looks_like_json(line) else line)
            at += len(rest[-1])
    return values, "\n".join(rest)


def looks_like_json(line: str) -> bool:
    """Return whether a line that cannot be read holds content, and is not a word such as `ping` or `[DONE]`."""
    return '"' in line or line.startswith("{")


def mend(value: Any, depth: int = MAX_DEPTH) -> tuple[Any, bool]:
    """Return a JSON value whose texts are clean, and whether a part of it cannot be read."""
    if isinstance(value, str):
        if value.isascii() or not _HALF.search(value):
            return value, False
        joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        text = _NO_BYTE.sub(UNREADABLE, joined).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return text, text.count("�") > value.count("�")
    if not isinstance(value, dict | list):
        return value, False
    if not depth:
        return "�", True
    if isinstance(value, list):
        parts = [mend(each, depth - 1) for each in value]
        return [part for part, _ in parts], any(damaged for _, damaged in parts)
    pairs = [(mend(key), mend(each, depth - 1)) for key, each in value.items()]
    return {key[0]: part[0] for key, part in pairs}, any(key[1] or part[1] for key, part in pairs)
