"""Server-sent events: their data from bytes in any pieces, and the removal of a secret that spans events.

Lines may end in LF, CRLF or CR, events may carry comments and other fields, the last blank line may be missing. A line
that begins as JSON is data, also without the field's name. Splitting works on bytes, so a stream may cut a multi-byte
character anywhere.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from plait.core.secrets import MASK, Scrubber
from plait.models.wires.odd_json import mend, read_values

BOM = b"\xef\xbb\xbf"
_KEEP_ALIVES = (b"ping", b"heartbeat", b"keepalive", b"keep-alive")
_BEFORE_JSON = re.compile(rb"\s*(?:data\s*:\s*)*+(?=[\[{])", re.I)
JsonPath: TypeAlias = tuple[str | int, ...]
"""The place of a text in a JSON value."""


class Events(Struct):
    """Read one stream: feed pieces of a body, get the data of each complete event.

    `errors` has the data of events that are named "error", and of fields `error:` (older llama.cpp).
    """

    errors: list[bytes] = []
    _rest: bytes = b""
    _data: list[bytes] = []
    _name: bytes = b""
    _first: bool = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that this piece completes."""
        buffer = self._rest + chunk if self._rest else chunk
        # A CR at the end may be half of a CRLF, so wait for the next piece.
        end = max(buffer.rfind(b"\n"), buffer.rfind(b"\r", 0, max(0, len(buffer) - 1))) + 1
        if end <= 0:
            self._rest = buffer
            return []
        self._rest = buffer[end:]
        return self._lines(buffer[:end])

    def close(self) -> list[bytes]:
        """Return the data of the remaining events, when the stream has ended."""
        rest, self._rest = self._rest, b""
        return self._lines(rest + b"\n\n")

    def _lines(self, block: bytes) -> list[bytes]:
        if self._first:
            self._first = False
            block = block.removeprefix(BOM)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        out: list[bytes] = []
        lines = block.split(b"\n")
        del lines[-1]  # what follows the last line end: nothing
        for line in lines:
            if not line:
                if self._data and self._name not in _KEEP_ALIVES:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    (self.errors if self._name == b"error" else out).append(data.strip())
                self._data = []
                self._name = b""
                continue
            field, colon, value = line.partition(b":")
            field, value = field.strip(b" \t\x00").lower(), value.removeprefix(b" ")
            if field == b"data" and colon:
                while value[:5].lower() == b"data:":  # wrapped twice
                    value = value[5:].removeprefix(b" ")
                self._data.append(value)
            elif field == b"event":
                self._name = value.strip().lower()
            elif field == b"error":
                self.errors.append(value)
            elif field[:1] in (b"{", b"}", b"[", b"]", b'"'):  # no field begins so
                self._data.append(line)
        return out


def is_json(body: bytes) -> bool:
    """Return whether the body is one JSON value, not a stream. Its first byte decides, because headers may be wrong."""
    return body.removeprefix(BOM).lstrip(b"\x00\t\r\n ")[:1] in (b"{", b"[")


def scrub_pieces(body: bytes, scrubber: Scrubber) -> bytes:
    """Replace secrets that span events. An event without a part of one keeps its bytes."""
    if not scrubber:
        return body
    lines = body.split(b"\n")
    events: dict[int, Any] = {}
    for number, line in enumerate(lines):
        if before := _BEFORE_JSON.match(line.removeprefix(BOM)):
            values, rest = read_values(line.removeprefix(BOM)[before.end() :])
            if len(values) == 1 and not rest:
                events[number] = mend(values[0])[0]
    pieces: dict[JsonPath, list[tuple[int, str]]] = {}
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
    """Return the parts of one text that must change, with their new text."""
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


def _texts(value: Any, path: JsonPath = ()) -> list[tuple[JsonPath, str]]:
    if isinstance(value, str):
        return [(path, value)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in inner for found in _texts(each, (*path, key))]


def _put(event: Any, path: JsonPath, text: str) -> None:
    for key in path[:-1]:
        event = event[key]
    event[path[-1]] = text
