"""The output of code, as the worker writes it and its parent reads it. Stdlib only."""

from __future__ import annotations

import io
import mmap
import struct

from plait.sandbox.piece_limits import PieceUse

HEADER = struct.Struct("=QQ")
"""In shared memory before the output: its length in bytes, and how many characters were printed."""


class Output(io.TextIOBase):
    """The output of code, in memory that the parent can read even after this process is killed."""

    def __init__(self, shared: mmap.mmap, use: PieceUse) -> None:
        self.shared, self.use = shared, use
        self.begin()

    def begin(self) -> None:
        self.length = 0
        HEADER.pack_into(self.shared, 0, 0, 0)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.use.print(text, self._show)
        return len(text)

    def _show(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        at = HEADER.size + self.length
        self.shared[at : at + len(data)] = data
        self.length += len(data)
        HEADER.pack_into(self.shared, 0, self.length, self.use.printed)
