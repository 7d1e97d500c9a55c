"""Reads what the person says: lines from a pipe, or lines at a terminal that can be edited, continued and pasted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator

import click

MORE = ". "
"""The prompt of a line that goes on."""


class Lines:
    """What is said, one at a time, till stdin ends. At a terminal Ctrl-C drops what is being written.

    There, a line that ends in a backslash goes on in the next, and what is pasted is one text, also in several lines.
    `before` can be called up again with the arrow keys, `complete` gives what Tab may offer for the words so far, and
    `over` says whether an interrupt was meant to end all.
    """

    def __init__(
        self,
        before: Iterable[str],
        complete: Callable[[list[str]], Iterable[str]],
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.here = sys.stdin.isatty()
        """A person sits there."""
        self._edited = self.here and sys.stdout.isatty()
        self._complete, self._over = complete, over
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")
        if self._edited:
            self._set_up()
        self.recall(before)

    def recall(self, before: Iterable[str]) -> None:
        """Put other lines in place of those that can be called up."""
        if self._edited:
            import readline

            readline.clear_history()
            for line in before:
                readline.add_history(line)

    def __iter__(self) -> Iterator[str]:
        while True:
            try:
                text = self._text()
            except EOFError:
                click.echo(err=True)
                return
            except KeyboardInterrupt:
                if not self.here:
                    raise
                click.echo(err=True)
                if self._over():
                    return
                continue
            if text is None:
                return
            if text.strip():
                yield text.strip()

    def _text(self) -> str | None:
        """A line, with those that it goes on in; None at the end of a pipe."""
        line = self._line("> ")
        parts = []
        while self.here and line is not None and line.rstrip("\n").endswith("\\"):
            parts.append(line.rstrip("\n")[:-1])
            line = self._line(MORE)
        return None if line is None and not parts else "\n".join([*parts, line or ""])

    def _line(self, prompt: str) -> str | None:
        if self._edited:
            return input(prompt)
        if self.here:
            click.echo(prompt, nl=False, err=True)
        return sys.stdin.readline() or None

    def _set_up(self) -> None:
        import readline

        if os.environ.get("TERM", "dumb") != "dumb":
            # Python switches it off. Without it each line of a pasted text would be sent as a turn of its own.
            readline.parse_and_bind("set enable-bracketed-paste on")
        offered: list[str] = []

        def offer(text: str, state: int) -> str | None:
            if state == 0:
                words = readline.get_line_buffer()[: readline.get_endidx()].split(" ")
                offered[:] = [each for each in self._complete(words) if each.startswith(text)]
            return offered[state] if state < len(offered) else None

        readline.set_completer_delims(" ")
        readline.set_completer(offer)
        readline.parse_and_bind("tab: complete")
