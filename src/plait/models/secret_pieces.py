"""Removes a secret that a stream of events carries in pieces: in each event only a part of it, together the whole."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from plait.core.secrets import MASK, Scrubber
from plait.models.stream import is_json

Path: TypeAlias = tuple[str | int, ...]


def scrub_pieces(body: bytes, scrubber: Scrubber) -> bytes:
    """The body with secrets replaced that no single event holds. An event without a part of one keeps its bytes."""
    if not scrubber or is_json(body):
        return body
    lines = body.split(b"\n")
    events: dict[int, Any] = {}
    for number, line in enumerate(lines):
        if line.startswith(b"data:"):
            try:
                events[number] = msgspec.json.decode(line[5:])
            except msgspec.DecodeError:
                continue
    pieces: dict[Path, list[tuple[int, str]]] = {}
    for number, event in events.items():
        for path, text in _texts(event):
            pieces.setdefault(path, []).append((number, text))
    changed: set[int] = set()
    for path, parts in pieces.items():
        for number, text in _without(parts, scrubber):
            _put(events[number], path, text)
            changed.add(number)
    for number in changed:
        lines[number] = b"data: " + msgspec.json.encode(events[number]) + b"\r" * lines[number].endswith(b"\r")
    return b"\n".join(lines)


def _without(parts: list[tuple[int, str]], scrubber: Scrubber) -> list[tuple[int, str]]:
    """The parts of one text that have to change, with what they are then."""
    spans = scrubber.spans("".join(text for _, text in parts))
    changed: list[tuple[int, str]] = []
    at = 0
    for number, text in parts:
        kept, read = "", at
        for start, end in spans:
            if end <= at or start >= at + len(text):
                continue
            kept += text[read - at : max(start, at) - at] + MASK * (start >= at)
            read = min(end, at + len(text))
        if read > at:
            changed.append((number, kept + text[read - at :]))
        at += len(text)
    return changed


def _texts(value: Any, path: Path = ()) -> list[tuple[Path, str]]:
    if isinstance(value, str):
        return [(path, value)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in inner for found in _texts(each, (*path, key))]


def _put(event: Any, path: Path, text: str) -> None:
    for key in path[:-1]:
        event = event[key]
    event[path[-1]] = text
