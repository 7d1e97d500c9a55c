"""Views that draw a run's events in a terminal with rich: as coloured blocks of text, or as one live line."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.status import Status
from rich.text import Text

from plait.cli.output import (
    SHOWN,
    describe_origin,
    format_call,
    format_code_error,
    format_hosted,
    format_reply,
    format_seconds,
    format_stage,
    shorten,
)
from plait.core import Call, Event
from plait.core import events as ev
from plait.core.text import clean, format_count
from plait.models.stages import Stage, StageEnded
from plait.runtime.run import Run

COLOURS = {"thought": "cyan", "action": "yellow", "observation": "green", "note": "magenta", "provider": "blue"}
LABEL = 14
"""Width of the column with the labels, in cells."""

_SHOWN_NOTES = ("retry", "repair", "limit", "loop", "model_change", "rate_limit", "todo", "absent")
_LAST_WORD = re.compile(r"\s+\S*\Z")


class ModelStatus:
    """The text beside the spinner during a model call: the phase, the model's stage, and the seconds so far."""

    def __init__(self, what: str, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._stage = Stage(model, clock=clock)

    def __rich__(self) -> Text:
        stage, seconds = self._stage.now()
        parts = (self._what, stage, self._stage.progress(), f"{seconds:.0f} s")
        return Text(" · ".join(filter(None, parts)), style="dim")


class SpinnerView:
    """A view with a spinner for the current work."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False, emoji=False, markup=False)
        self._status: Status | None = None

    def _spin(self, text: str | Text | ModelStatus) -> None:
        shown = Text(text, style="dim") if isinstance(text, str) else text
        if self._status is None:
            self._status = self._console.status(shown)
            self._status.start()
        else:
            self._status.update(shown)

    def _stop_spinner(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class TerminalView(SpinnerView):
    """Write each block of text word by word beside its label. `limit`: characters shown of an observation."""

    def __init__(self, out: TextIO, limit: int | None = SHOWN) -> None:
        super().__init__(out)
        self._limit = limit
        self._label = ""
        """The label of the block that is being written, "" between two blocks."""
        self._style = ""
        self._line = ""
        """The current line so far."""
        self._pending = ""
        """Text that is held back: white space, and a word that may not be complete."""
        self._texts: defaultdict[int, str] = defaultdict(str)
        """The texts that may be the answer or a thought."""
        self._open_calls: list[Call] = []

    def __call__(self, event: Event | StageEnded) -> None:
        if isinstance(event, StageEnded):
            self._note(format_stage(event))  # above the spinner, which continues
            return
        self._stop_spinner()
        match event:
            case ev.Began():
                self._dim(" · ".join((f"run {event.run}", event.loop, *describe_origin(event))))
            case ev.Asked(phase=phase, model=model):
                self._end_block()
                self._spin(ModelStatus(f"{phase} · {clean(model)}", model))
            case ev.Thought(text=text):
                self._stream("thought", text)
            case ev.Text(text=text, part=part) | ev.Answer(text=text, part=part):
                self._texts[part] += text
                self._spin("writes an answer")
            case ev.Marked(part=part, kind="thought") if part in self._texts:
                self._block("thought", self._texts.pop(part))
            case ev.Action():
                # The loop parses its syntax; the action is drawn when its call starts.
                self._end_block()
                self._spin("writes an action")
            case ev.Called(call=call):
                self._open_calls.append(call)
                self._block("action", format_call(call))
                if len(self._open_calls) == 1:
                    self._spin(f"{clean(call.tool)} runs")
            case ev.Observed(call=call, observation=observation):
                text, missing = shorten(observation.text, self._limit)
                which = f"{format_call(call)}: " if len(self._open_calls) > 1 else ""
                if call in self._open_calls:
                    self._open_calls.remove(call)
                elif observation.trouble == "refused":
                    self._note(f"not made: {format_call(call)}")
                self._block("observation", which + text, failed=not observation.ok)
                self._note(missing)
                self._note(observation.note)
            case ev.HostedCalled(call=call):
                self._block("provider", format_hosted(call, self._limit), failed=call.failed)
            case ev.Executing(code=code):
                self._block("action", code)
                self._spin("the code runs")
            case ev.Executed(ran=ran):
                text, missing = shorten(ran.output, self._limit)
                if text:
                    self._block("observation", text)
                self._note(missing)
                if ran.error is not None:
                    self._block("observation", format_code_error(ran), failed=True)
            case ev.Replied(citations=cited):
                if cited:
                    self._block("provider", "\n".join(["Sources:", *map(str, cited)]))
                self._note(format_reply(event))
            case ev.Noted(kind=kind, text=text):
                self._block("note", f"{kind}: {text}")
            case ev.Ended():
                self._end_block()
            case _:
                pass

    def close(self) -> None:
        """End the spinner and the current line."""
        self._stop_spinner()
        self._end_block()

    def _block(self, label: str, text: str, *, failed: bool = False) -> None:
        self._end_block()
        self._stream(label, text.strip("\n"), style="red" if failed else "")
        self._end_block()

    def _stream(self, label: str, text: str, *, style: str = "") -> None:
        text = clean(text)
        if label != self._label:
            self._end_block()
            if not (text := text.lstrip()):
                return
            self._label, self._style = label, style
            self._write(f"{label:<{LABEL - 2}}", f"bold {COLOURS[label]}")
            self._write("│ ", COLOURS[label])
        end = _LAST_WORD.search(text)
        ready = self._pending + text[: end.start()] if end is not None else ""
        if end is not None and ready.strip():
            self._write_lines(ready)
            self._pending = text[end.start() :]
        else:
            self._pending += text

    def _write_lines(self, text: str) -> None:
        room = max(20, self._console.width - LABEL)
        for number, line in enumerate(Text(self._line + text).wrap(self._console, room, tab_size=4)):
            if number:
                self._write("\n" + " " * (LABEL - 2), "")
                self._write("│ ", COLOURS[self._label])
                self._line = ""
            self._write(line.plain[len(self._line) :], self._style)
            self._line = line.plain

    def _end_block(self) -> None:
        if self._label:
            self._write_lines(self._pending.rstrip())
            self._write("\n", "")
        self._label = self._line = self._pending = self._style = ""

    def _write(self, text: str, style: str) -> None:
        if text:
            self._console.print(Text(text, style=style, end=""), end="", soft_wrap=True)

    def _dim(self, text: str) -> None:
        self._end_block()
        self._console.print(Text(clean(text), style="dim"), soft_wrap=True)

    def _note(self, text: str) -> None:
        if text:
            self._dim(" " * LABEL + text)


class OneLineView(SpinnerView):
    """Show one live line: the end of the current thought, or the running tools. It disappears with the turn."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._phase = ""
        self._thought = ""
        self._running: list[str] = []
        self._used: Counter[str] = Counter()
        self._sources = 0

    def __call__(self, event: Event | StageEnded) -> None:
        match event:
            case ev.Asked(phase=phase, model=model):
                self._phase, self._thought = phase, ""
                self._stop_spinner()
                self._spin(ModelStatus(clean(phase), model))
            case ev.Thought(text=text) | ev.Text(text=text):
                self._thought = (self._thought + text)[-500:]
                self._show(f"{self._phase} · ", self._thought)
            case ev.Action() | ev.Answer():
                self._show(f"{self._phase} · writes an {type(event).__name__.lower()}")
            case ev.Called(call=call):
                self._used[call.tool] += 1
                self._running.append(call.tool)
                self._show_running()
            case ev.HostedCalled(call=made):
                self._used[made.tool] += 1
            case ev.Replied(citations=cited):
                self._sources = len(cited)
            case ev.Observed(call=call):
                if call.tool in self._running:
                    self._running.remove(call.tool)
                self._show_running()
            case ev.Executing():
                self._show("the code runs")
            case ev.Noted(kind=kind, text=text) if kind in _SHOWN_NOTES:
                self._show(f"{kind} · ", text.partition("\n")[0][:200])
            case ev.Ended():
                self._stop_spinner()
            case _:
                pass

    def close(self) -> None:
        self._stop_spinner()

    def summary(self, run: Run) -> str:
        """Return a summary of the hidden part, in one line: `4 steps · people 2x, calculator · 1.2 s · /show shows
        it`."""
        tools = ", ".join(f"{clean(name)} {n}x" if n > 1 else clean(name) for name, n in self._used.items())
        sources = format_count(self._sources, "source") if self._sources else ""
        parts = [format_count(run.steps, "step"), tools, sources, format_seconds(run.seconds), "/show shows it"]
        return " · ".join(filter(None, parts))

    def _show_running(self) -> None:
        if names := list(dict.fromkeys(self._running)):
            self._show(f"{', '.join(names)} run{'s' * (len(self._running) == 1)}")

    def _show(self, head: str, words: str = "") -> None:
        """Show one line: the head, and the end of `words`."""
        head = " ".join(clean(head).split(" "))
        words = " ".join(clean(words).split())
        room = max(10, self._console.width - 4)
        if cell_len(head + words) > room:
            words = words[-room:]
            while words and cell_len(head + "…" + words) > room:
                words = words[1:]
            words = "…" + words
        self._spin(Text((head + words)[:room], style="dim", no_wrap=True, overflow="ellipsis"))
