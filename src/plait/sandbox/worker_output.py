"""What code prints, as the worker writes it down and its parent reads it. Stdlib only."""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Callable

FLOOD = 20
"""A piece is ended when it prints that many times what is shown of it."""

HEADER = struct.Struct("=QQ")
"""Before the output in shared memory: its length in bytes, and how many characters were printed."""


def cut_note(printed: int, limit: int) -> str:
    """Return the words about what is not shown of the output, "" if all of it is."""
    if printed <= limit:
        return ""
    more = f"more than {FLOOD * limit}" if printed > FLOOD * limit else f"{printed - limit} more"
    return f"\n[... cut: {more} characters were printed]\n"


class Output(io.TextIOBase):
    """What code prints, put where the other process can read it even when this one is killed."""

    def __init__(self, shared: mmap.mmap, most: int, flood: Callable[[], None]) -> None:
        self.shared, self.most, self.flood = shared, most, flood
        self.begin()

    def begin(self) -> None:
        self.length = self.printed = 0
        HEADER.pack_into(self.shared, 0, 0, 0)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        room = self.most - self.printed
        self.printed += len(text)
        if room > 0:
            data = text[:room].encode("utf-8", "replace")
            at = HEADER.size + self.length
            self.shared[at : at + len(data)] = data
            self.length += len(data)
        HEADER.pack_into(self.shared, 0, self.length, self.printed)
        if self.printed > FLOOD * self.most:
            self.flood()
        return len(text)
