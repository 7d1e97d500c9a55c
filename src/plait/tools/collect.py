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
"""Depth of the lists and dicts in which iterators are found."""

_LAZY = (range, deque, KeysView, ValuesView, ItemsView)


class Collected:
    """The values of an iterator, as far as they are taken. `cut`: it has more than the limits allow."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.characters = 0
        self.cut = False

    def add(self, value: Any) -> None:
        """Take a value, or set `cut`."""
        self.characters += len(value) if isinstance(value, str | bytes) else 0
        self.cut = len(self.values) == MOST_VALUES or self.characters > MOST_CHARACTERS
        if not self.cut:
            self.values.append(value)


def collect_values(value: Any, depth: int = _DEPTH) -> tuple[Any, bool]:
    """Return a tool's result with a list in place of each iterator, range and view, and whether a list was cut.

    It reads iterators also inside of lists, tuples and dicts. It stops, and closes a generator, when the call is
    cancelled. Runs the code of generators, so call it in the tool's thread.
    """
    if not depth or _is_plain(value, set()):
        return value, False
    if type(value) is dict:
        found = [collect_values(each, depth - 1) for each in value.values()]
        return dict(zip(value, (part for part, _ in found), strict=True)), any(cut for _, cut in found)
    if type(value) in (list, tuple):
        found = [collect_values(each, depth - 1) for each in value]
        return type(value)(part for part, _ in found), any(cut for _, cut in found)
    collected = Collected()
    try:
        for each in value:
            collected.add(each)
            if collected.cut or cancelled():
                break
    finally:
        if isinstance(value, GeneratorType):
            value.close()
    return collect_values(collected.values, depth - 1)[0], collected.cut


def _is_plain(value: Any, seen: set[int]) -> bool:
    """Return whether a value needs no list in place of an iterator. `seen`: a value may hold itself."""
    if isinstance(value, str | int | float | None) or id(value) in seen:
        return True
    if type(value) in (list, tuple, dict):
        seen.add(id(value))
        return all(_is_plain(each, seen) for each in tuple(value.values() if type(value) is dict else value))
    if not isinstance(value, (*_LAZY, Iterator)):
        return True
    return isinstance(value, Artifact) or fields_of(value) is not None


async def collect_stream(stream: AsyncIterator[Any]) -> tuple[list[Any], bool]:
    """Return the values of an async iterator, and whether there are more. An async generator is closed at the end, also
    when the call is cancelled."""
    collected = Collected()
    try:
        async for each in stream:
            collected.add(each)
            if collected.cut:
                break
    finally:
        if isinstance(stream, AsyncGeneratorType):
            await stream.aclose()
    return collected.values, collected.cut
