"""The output of code, as the worker writes it and its parent reads it. Stdlib only."""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Callable

FLOOD = 20
"""A piece ends when it prints this many times the shown length."""

HEADER = struct.Struct("=QQ")
"""In shared memory before the output: its length in bytes, and how many characters were printed."""


def cut_note(printed: int, limit: int) -> str:
    """Return a note about the part of the output that is not shown; "" if all is shown."""
    if printed <= limit:
        return ""
    more = f"more than {FLOOD * limit}" if printed > FLOOD * limit else f"{printed - limit} more"
    return f"\n[... cut: {more} characters were printed]\n"


class Output(io.TextIOBase):
    """The output of code, in memory that the parent can read even after this process is killed."""

    def __init__(self, shared: mmap.mmap, max_chars: int, flood: Callable[[], None]) -> None:
        self.shared, self.max_chars, self.flood = shared, max_chars, flood
        self.begin()

    def begin(self) -> None:
        self.length = self.printed = 0
        HEADER.pack_into(self.shared, 0, 0, 0)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        room = self.max_chars - self.printed
        self.printed += len(text)
        if room > 0:
            data = text[:room].encode("utf-8", "replace")
            at = HEADER.size + self.length
            self.shared[at : at + len(data)] = data
            self.length += len(data)
        HEADER.pack_into(self.shared, 0, self.length, self.printed)
        if self.printed > FLOOD * self.max_chars:
            self.flood()
        return len(text)
