"""What one piece of code uses, counted against its limits, and the words of its end. Both sandboxes count with it.

Stdlib only, because the worker of the process sandbox runs it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FLOOD = 20
"""A piece ends when it prints this many times the shown length."""

MESSAGE_CHARS = 4000
"""Maximum length of an exception's message."""

SOURCE_CHARS = 1000
"""Maximum length of a line of code that is shown."""


class PieceUse:
    """Counts what one piece of code uses. `limits` has the fields of `CodeLimits`.

    `over` is called with the limit ("time", "output" or "tool_calls") that the piece exceeds, and with the line, 0
    if it is unknown. `seconds` is the running time so far, which the holder counts.
    """

    def __init__(self, limits: Any, over: Callable[[Any, int], None]) -> None:
        self.limits, self.over = limits, over
        self.begin()

    def begin(self) -> None:
        """Count a new piece."""
        self.calls = self.sent = self.printed = 0
        self.seconds = self.slept = 0.0

    def print(self, text: str, show: Callable[[str], None]) -> None:
        """Count printed text. `show` gets the part of it that is shown, which may be empty."""
        room, flood = self.limits.output_chars - self.printed, FLOOD * self.limits.output_chars
        was_flooded = self.printed > flood
        self.printed += len(text)
        show(text[: max(room, 0)])
        if self.printed > flood and not was_flooded:
            self.over("output", 0)

    def end_output(self) -> str:
        """Return a note about the part of the output that is not shown; "" if all is shown."""
        limit = self.limits.output_chars
        if self.printed <= limit:
            return ""
        more = f"more than {FLOOD * limit}" if self.printed > FLOOD * limit else f"{self.printed - limit} more"
        return f"\n[... cut: {more} characters were printed]\n"

    def add_calls(self, count: int, line: int = 0) -> None:
        """Count calls that are about to leave the sandbox."""
        self.calls += count
        if self.calls > self.limits.tool_calls:
            self.over("tool_calls", line)

    def check_call(self, size: int) -> None:
        """Raise `ValueError` if one call may not pass on so many bytes."""
        if size > self.limits.call_bytes:
            raise ValueError(
                f"arguments of {size:,} bytes can't be passed on in one call (at most {self.limits.call_bytes:,})"
            )

    def send(self, size: int) -> None:
        """Count bytes that leave the sandbox. Raises `ValueError` if the piece may not pass them on."""
        if self.sent + size > self.limits.sent_bytes:
            limit = self.limits.sent_bytes
            raise ValueError(f"the calls of one piece of code may pass on {limit:,} bytes, and this is beyond")
        self.sent += size

    def sleep(self, seconds: float) -> None:
        """Count a sleep, which takes no time, as running time."""
        self.slept += seconds
        if not self.slept + self.seconds <= self.limits.seconds:  # also true for nan
            self.over("time", 0)


def describe_limit(limit: str, limits: Any) -> tuple[str, str]:
    """Return the type and the message of the error with which a limit ends a piece of code."""
    return {
        "time": ("TimeoutError", f"it ran longer than {limits.seconds:g} s"),
        "memory": ("MemoryError", f"it used more than {limits.memory_mb} MB of memory"),
        "recursion": ("RecursionError", f"more than {limits.recursion} calls were open at once"),
        "output": ("RuntimeError", f"it printed more than {FLOOD * limits.output_chars:,} characters"),
        "tool_calls": ("RuntimeError", f"it made more than {limits.tool_calls} calls"),
    }.get(limit, ("RuntimeError", limit))


def cut(text: str, chars: int) -> str:
    """Cut a text that is too long, and say so."""
    return text if len(text) <= chars else f"{text[:chars]} [... cut: {len(text) - chars} more characters]"
