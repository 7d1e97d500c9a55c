"""A text of a reply as endpoints send it, and the parts of a state that grow from pieces. Pure.

A text arrives in pieces, as snapshots of all that came, or once more as a whole. Public reports (GitHub, as of November
2026) of what `Pieces` reads:

- The last event holds the whole message: abundantbeing/hermes-browser-extension #11, ENTERPILOT/GoModel #1068.
- The last delta repeats all deltas: infiniflow/ragflow #15286.
- Each event has the piece as a delta and as a message: microsoft/foundry-local #144.
- Each delta is a snapshot: open-jarvis/OpenJarvis #378.

No public report was found of a character whose halves come in two events. JSON allows it: "\\ud83d", then "\\ude00".
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from plait.models.wires.odd_json import mend

SURE = 12
"""Minimum characters of the second of three snapshots. Shorter pieces may begin alike by chance."""
REPEATED = 20
"""Minimum characters of a last piece that repeats all pieces before it."""
_HALVES = re.compile("[\ud800-\udfff]{1,3}\\Z")


class Pieces(Struct):
    """Read one text: add what an endpoint sends, get what is new in it.

    Text is dropped only if its form says that it is a repetition: it came as the whole message (`whole`), or each of
    the first three pieces begins with all of the one before. Two halves of a character are joined, and U+FFFD stands
    for what cannot be read. `is_stated`: a whole message came last, and agrees with all pieces before it.
    """

    is_stated: bool = False
    _came: list[str] = []
    _length: int = 0
    _last: str = ""  # the last piece, while all may be snapshots
    _maybe: list[str] = []  # pieces that are snapshots or more text
    _are_snapshots: bool = False
    _in_pieces: bool = False
    _half: str = ""

    def add(self, text: str, whole: bool = False, ends: bool = False) -> str:
        """Return what is new. `ends`: the reply's end came with this piece."""
        if self._in_pieces and not (self._last or whole or ends):
            return self._take(text)
        if not text:
            return ""
        begins_same = bool(self._last) and text.startswith(self._last)
        grows = begins_same and len(text) > len(self._last)
        self.is_stated = whole and begins_same
        if begins_same and (whole or self._are_snapshots or (grows and self._maybe and len(self._last) >= SURE)):
            self._are_snapshots = not whole
            self._maybe, self._last = [], text
            return self._take(text[self._length :])
        if grows:
            self._maybe.append(text)
            self._last = text
            return ""
        self._last = "" if self._came else text
        self._are_snapshots = False
        many = len(self._came) + len(self._maybe) > 1
        new = self._take("".join(self._maybe)) if self._maybe else ""
        self._maybe = []
        if whole or (ends and many and len(text) >= REPEATED and len(text) == self._length):
            so_far = "".join(self._came) if len(text) >= self._length else ""
            if so_far and text.startswith(so_far):
                self.is_stated, text = whole, text[self._length :]
            elif whole and self._in_pieces:
                text = ""
        self._in_pieces = self._in_pieces or not whole
        return new + self._take(text)

    def close(self) -> str:
        """Return the rest, when all has arrived."""
        if not (self._maybe or self._half):
            return ""
        held, self._maybe = "".join(self._maybe), []
        return f"{self._take(held)}{mend(self._half)[0]}"

    def _take(self, text: str) -> str:
        if not text:
            return ""
        self._came.append(text)
        self._length += len(text)
        if self._half or not text.isascii():
            text, self._half = self._half + text, ""
            if half := _HALVES.search(text):
                text, self._half = text[: half.start()], half[0]
            text = mend(text)[0]
        return text


class GrowingText(list[str]):
    """A text of a part that is still arriving."""


class GrowingParts(list[Any]):
    """The parts inside a part that is still arriving."""


def grow(part: dict[str, Any], key: str, value: Any) -> None:
    """Add a piece of a text to a part. Any other value replaces the one before."""
    before = part.get(key)
    if isinstance(before, GrowingText) and isinstance(value, str):
        before.append(value)
    else:
        part[key] = GrowingText([value]) if isinstance(value, str) else value


def close_part(part: Any) -> Any:
    """Return a part with its whole texts. Anything but a table stays as it is."""
    if not isinstance(part, dict):
        return part
    texts = {key: "".join(value) for key, value in part.items() if isinstance(value, GrowingText)}
    inner = {key: list(map(close_part, value)) for key, value in part.items() if isinstance(value, GrowingParts)}
    return {**part, **texts, **inner}
