"""What an MCP server's process is given, and what it writes on stderr: kept, not shown, and said on failure."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TextIO

KEPT = 8_000
"""Bytes kept of what a server wrote last."""

SHOWN = 1_200
"""Characters shown of them on failure."""

PASSED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables that a server is given besides those the SDK passes on (HOME, LOGNAME, PATH, SHELL, TERM, USER)."""


def usual() -> dict[str, str]:
    """Variables that hold no secrets and that programs need to speak the user's language."""
    return {name: os.environ[name] for name in PASSED if name in os.environ}


class Tail:
    """The end of what a process wrote. It is read on the loop that `open` was called on."""

    def __init__(self) -> None:
        self._text = b""
        self._read = -1
        self._write: TextIO | None = None

    def open(self) -> TextIO:
        """A file for a new process to write on; forgets what was kept."""
        self.close()
        self._text = b""
        self._read, end = os.pipe()
        os.set_blocking(self._read, False)
        asyncio.get_running_loop().add_reader(self._read, self._more)
        self._write = os.fdopen(end, "w")
        return self._write

    def began(self) -> None:
        """The process has the file: this side is closed, so that its end is seen."""
        if self._write is not None:
            self._write.close()
            self._write = None

    def close(self) -> None:
        """Read what is there, and no more."""
        self.began()
        if self._read < 0:
            return
        while self._more():
            pass
        if self._read >= 0:
            asyncio.get_running_loop().remove_reader(self._read)
            os.close(self._read)
            self._read = -1

    def said(self) -> str:
        """A sentence with the last lines; "" where nothing was written."""
        text = self._text.decode("utf-8", "replace").strip()
        # No codes for a terminal: what a server writes must not move somebody's cursor.
        text = "".join(each if each.isprintable() or each == "\n" else " " for each in text)
        if not text:
            return ""
        shown = text if len(text) <= SHOWN else "..." + text[-SHOWN:]
        return f" It wrote on stderr:\n{shown}\n"

    def _more(self) -> bool:
        with suppress(BlockingIOError, InterruptedError):
            data = os.read(self._read, 65_536)
            if data:
                self._text = (self._text + data)[-KEPT:]
                return True
            asyncio.get_running_loop().remove_reader(self._read)
            os.close(self._read)
            self._read = -1
        return False
