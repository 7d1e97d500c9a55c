"""Capture of what a tool prints while code calls it. The model sees the output with the result.

During such calls, `sys.stdout` is a stream that checks the context of the writer. Tools run with a copy of their call's
context, so parallel calls do not mix. Plait does not collect the output of threads that a tool starts, nor output
written to the file descriptor.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

MOST = 2000
"""Maximum number of characters stored of one call's output."""


class Collected:
    """The output of one call, cut at its limit."""

    def __init__(self) -> None:
        self.total = 0
        self._parts: list[str] = []

    def add(self, text: str) -> None:
        room = MOST - self.total
        self.total += len(text)
        if room > 0:
            self._parts.append(text[:room])

    @property
    def text(self) -> str:
        """Return the output, and how much of it was cut."""
        cut = f"\n[... cut: {self.total - MOST:,} more characters were printed]" if self.total > MOST else ""
        return "".join(self._parts) + cut


_here: ContextVar[Collected | None] = ContextVar("plait_printed", default=None)
_lock = threading.Lock()
_calls = 0


class _Stream(io.TextIOBase):
    """Replaces `sys.stdout` during calls: collects the output of each, and passes on all other output."""

    def __init__(self, usual: Any) -> None:
        self.usual = usual

    def write(self, text: str) -> int:
        here = _here.get()
        if here is None:
            return int(self.usual.write(text) or 0)
        here.add(str(text))
        return len(text)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self.usual.flush()

    def fileno(self) -> int:
        return int(self.usual.fileno())

    def isatty(self) -> bool:
        return _here.get() is None and bool(self.usual.isatty())

    def __getattribute__(self, name: str) -> Any:
        if name in ("encoding", "errors", "newlines", "buffer", "line_buffering", "mode", "name"):
            return getattr(object.__getattribute__(self, "usual"), name)
        return super().__getattribute__(name)

    def __del__(self) -> None:  # the base class would close it
        pass


@contextmanager
def collecting() -> Iterator[Collected]:
    """Collect what is printed in this context, and in threads and tasks with a copy of it."""
    global _calls
    collected = Collected()
    with _lock:
        if _calls == 0 and sys.stdout is not None:
            sys.stdout = _Stream(sys.stdout)
        _calls += 1
    token = _here.set(collected)
    try:
        yield collected
    finally:
        _here.reset(token)
        with _lock:
            _calls -= 1
            if _calls == 0 and isinstance(sys.stdout, _Stream):
                sys.stdout = sys.stdout.usual


@contextmanager
def as_usual() -> Iterator[None]:
    """Print to the usual place, also within `collecting`."""
    token = _here.set(None)
    try:
        yield
    finally:
        _here.reset(token)
