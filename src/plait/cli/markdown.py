"""Answers in Markdown on a terminal, while they are written.

Theory of operation. A block of Markdown, such as a paragraph or a table, is drawn when the next one begins: from there
it does not change any more. The last lines of the unfinished block are shown below as they are. All that is drawn is
cleaned once more behind the renderer, because Markdown can write characters as numbers. Links show their address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from plait.cli.run_output import RunView
from plait.core import Event
from plait.core import events as ev
from plait.core.text import clean
from plait.models.stages import StageEnded

_PARSER = MarkdownIt().enable("strikethrough").enable("table")
_TAIL = 2_000
"""Characters of an unfinished block that are shown."""


class _Safe:
    """Draws the Markdown of a model's text, without anything that could act on the terminal."""

    def __init__(self, text: str) -> None:
        self._markdown = Markdown(clean(text), hyperlinks=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments: Iterable[Segment] = console.render(self._markdown, options)
        return (Segment(clean(each.text), each.style) for each in segments if not each.control)


def print_markdown(text: str, out: TextIO) -> None:
    """Draw a whole text."""
    Console(file=out, emoji=False).print(_Safe(text))


class AnswerView:
    """Streams what may be the answer to a terminal, and passes all other events on to a view. JSON is not Markdown, so
    what looks like it is left to the end of the run. `has_answered`: the answer is shown."""

    def __init__(self, view: RunView, out: TextIO) -> None:
        self._view, self._console = view, Console(file=out, emoji=False)
        self._live: Live | None = None
        self._part = self._ready_at = 0
        self._text = ""
        """What is not drawn yet of the text `_part`."""
        self._is_json = False
        self.has_answered = False

    def __call__(self, event: Event | StageEnded) -> None:
        match event:
            case ev.Text(text=text, part=part) | ev.Answer(text=text, part=part):
                if part != self._part:
                    self._finish()
                    self._view.close()
                    self._part, self._is_json = part, text[:1] in ("{", "[")
                self._text += text
                if not self._is_json:
                    self._draw()
            case ev.Marked(part=self._part, kind=kind):
                self.has_answered = kind == "answer" and not self._is_json
                self._finish()
                if kind != "answer" and not self._is_json:
                    self._console.print(Text("(not the answer)", style="dim"))
            case _:
                self._pause()
                self._view(event)

    def close(self) -> None:
        self._pause()
        self._view.close()

    def _draw(self) -> None:
        """Draw the blocks that are complete, and show the end of the last one."""
        if "\n" in self._text and len(self._text) >= self._ready_at:
            self._text = clean(self._text)
            lines = self._text.split("\n")
            starts = [token.map[0] for token in _PARSER.parse(self._text) if token.level == 0 and token.map]
            if starts and (last := starts[-1]):
                self._pause()
                self._console.print(_Safe("\n".join(lines[:last])))
                self._console.print()
                self._text = "\n".join(lines[last:])
            self._ready_at = len(self._text) * 5 // 4  # so that a long block is not parsed with each line
        if self._live is None:
            self._live = Live(console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        rows = clean(self._text[-_TAIL:]).splitlines()[-max(self._console.height // 2, 1) :]
        self._live.update(Text("\n".join(rows)))

    def _finish(self) -> None:
        """Draw the rest of the text."""
        self._pause()
        if self._text.strip() and not self._is_json:
            self._console.print(_Safe(self._text))
        self._text, self._part, self._ready_at = "", 0, 0

    def _pause(self) -> None:
        """Take away what is shown of the unfinished block: others draw on the terminal now."""
        if self._live is not None:
            self._live.stop()
            self._live = None
