"""Turns results that can be read only once, or only step by step, into lists: generators, `map`, `range`, views."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, ItemsView, Iterator, KeysView, ValuesView
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from plait.core.artifacts import Artifact
from plait.tools.call_context import cancelled
from plait.tools.render import fields_of

MOST_VALUES = 100_000
"""Maximum number of values that are taken from one iterator."""

MOST_CHARACTERS = 20_000_000
"""Maximum length of the texts and bytes that are taken from one iterator."""

_DEPTH = 6
_LAZY = (range, deque, KeysView, ValuesView, ItemsView, Iterator)


class _Taken:
    """The values that an iterator gave. `is_cut`: it has more than the limits allow."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.room, self.is_cut = MOST_CHARACTERS, False

    def take(self, value: Any) -> bool:
        """Take a value; return whether the limits allow it."""
        self.room -= len(value) if isinstance(value, str | bytes) else 0
        self.is_cut = len(self.values) == MOST_VALUES or self.room < 0
        if not self.is_cut:
            self.values.append(value)
        return not self.is_cut


def collect_values(value: Any, depth: int = _DEPTH) -> tuple[Any, bool]:
    """Return a tool's result with a list in place of each iterator, range and view, and whether a list was cut.

    It reads those inside of lists, tuples and dicts, too. It stops when the call is cancelled, and closes a generator.
    The code of generators runs here, so call it in the tool's thread.
    """
    if not depth or _is_plain(value, set()):
        return value, False
    if type(value) in (list, tuple, dict):
        found = [collect_values(each, depth - 1) for each in (value.values() if type(value) is dict else value)]
        parts = [part for part, _ in found]
        made = dict(zip(value, parts, strict=True)) if type(value) is dict else type(value)(parts)
        return made, any(is_cut for _, is_cut in found)
    taken = _Taken()
    try:
        for each in value:
            if not taken.take(each) or cancelled():
                break
    finally:
        if isinstance(value, GeneratorType):
            value.close()
    return collect_values(taken.values, depth - 1)[0], taken.is_cut


async def collect_stream(stream: AsyncIterator[Any]) -> tuple[list[Any], bool]:
    """Return the values of an async iterator, and whether it has more than the limits allow. An async generator is
    closed at the end, also when the call is cancelled."""
    taken = _Taken()
    try:
        async for each in stream:
            if not taken.take(each):
                break
    finally:
        if isinstance(stream, AsyncGeneratorType):
            await stream.aclose()
    return taken.values, taken.is_cut


def _is_plain(value: Any, seen: set[int]) -> bool:
    """Return whether a value holds nothing that must become a list. `seen`: it may hold itself."""
    if isinstance(value, str | int | float | None) or id(value) in seen:
        return True
    if type(value) in (list, tuple, dict):
        seen.add(id(value))
        return all(_is_plain(each, seen) for each in tuple(value.values() if type(value) is dict else value))
    return not isinstance(value, _LAZY) or isinstance(value, Artifact) or fields_of(value) is not None
