"""A turn seen from a terminal: one line says what is being done, and folds to a few words when it is over."""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from plait.cli.draw import Braid, Waiting
from plait.cli.text import clean, count, duration
from plait.core import Event
from plait.core import events as ev
from plait.runtime.run import Run


class Folded(Braid):
    """Shows the end of the thought that is being written, the tools that work, and leaves nothing of it behind."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._phase = ""
        self._thought = ""
        self._at_work: list[str] = []
        self._used: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        match event:
            case ev.Asked(phase=phase, model=model):
                self._phase, self._thought = phase, ""
                self._quiet()
                self._spin(Waiting(clean(phase), model))
            case ev.Thought(text=text):
                self._thought = (self._thought + text)[-500:]
                self._say(f"{self._phase} · ", self._thought)
            case ev.Action() | ev.Answer():
                self._say(f"{self._phase} · writes an {type(event).__name__.lower()}")
            case ev.Called(call=call):
                self._used[call.tool] += 1
                self._at_work.append(call.tool)
                self._works()
            case ev.Observed(call=call):
                if call.tool in self._at_work:
                    self._at_work.remove(call.tool)
                self._works()
            case ev.Executing():
                self._say("the code runs")
            case ev.Noted(kind=kind, text=text) if kind in ("retry", "repair", "limit", "loop"):
                self._say(f"{kind} · ", text[:200])
            case ev.Ended():
                self._quiet()
            case _:
                pass

    def folded(self, run: Run) -> str:
        """What was not shown, in a line: `4 steps · people 2x, calculator · 1.2 s · /show tells it`."""
        tools = ", ".join(f"{clean(name)} {n}x" if n > 1 else clean(name) for name, n in self._used.items())
        parts = [count(run.steps, "step"), tools, duration(run.seconds), "/show tells it"]
        return " · ".join(part for part in parts if part)

    def _works(self) -> None:
        names = list(dict.fromkeys(self._at_work))
        if names:
            self._say(f"{', '.join(names)} work{'s' * (len(self._at_work) == 1)}")

    def _say(self, head: str, words: str = "") -> None:
        """One line, however long: of `words` the end is shown."""
        head = " ".join(clean(head).split(" "))
        words = " ".join(clean(words).split())
        room = max(10, self._console.width - 4)
        if cell_len(head + words) > room:
            words = words[-room:]
            while words and cell_len(head + "…" + words) > room:
                words = words[1:]
            words = "…" + words
        text = Text((head + words)[:room], style="dim", no_wrap=True, overflow="ellipsis")
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)
