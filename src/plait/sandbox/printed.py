"""What a piece of code printed, cut at its limit."""

from __future__ import annotations

from collections.abc import Callable

FLOOD = 20
"""A piece that prints so many times its limit is ended."""


class Printed:
    """Collects what one piece prints. `flooded` when it is so much that the piece should be ended; then `stop` is
    called, once."""

    def __init__(self, limit: int, stop: Callable[[], None] = lambda: None) -> None:
        self.limit = limit
        self.total = 0
        self.flooded = False
        self._kept: list[str] = []
        self._stop = stop

    def add(self, stream: str, text: str) -> None:
        """A few more characters; `stream` is not told apart."""
        room = self.limit - self.total
        self.total += len(text)
        if room > 0:
            self._kept.append(text[:room])
        if self.total > self.limit * FLOOD and not self.flooded:
            self.flooded = True
            self._stop()

    def take(self, last: bool) -> str:
        """What was printed since this was last asked; with the note of how much was cut, when it is the last time."""
        text = "".join(self._kept)
        self._kept.clear()
        if not last or self.total <= self.limit:
            return text
        more = f"more than {self.limit * FLOOD}" if self.flooded else f"{self.total - self.limit} more"
        return f"{text}\n[... cut: {more} characters were printed]\n"
