"""Shows a run's events as lines of plain text: for pipes, files and logs."""

from __future__ import annotations

from typing import Any, Protocol, TextIO

from plait.cli.text import SHOWN, brief_json, clean, cut, duration, money, tokens
from plait.core import Event, Ran
from plait.core import events as ev


class Watch(Protocol):
    """Shows events. `close` ends what is still open on the screen."""

    def __call__(self, event: Event) -> None: ...

    def close(self) -> None: ...


class Unwatched:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        return

    def close(self) -> None:
        return


class Lines:
    """A label and its text, `Thought: ...`, a part at a time; further lines of a text are indented.

    So no tool's output can pass for a line of ours. `most`: characters shown of an observation, None for all.
    """

    def __init__(self, out: TextIO, most: int | None = SHOWN) -> None:
        self._out = out
        self._most = most
        self._thought: list[str] = []
        self._open = 0

    def __call__(self, event: Event) -> None:
        if not isinstance(event, ev.Thought):
            self._flush_thought()
        match event:
            case ev.Began(run=run, strategy=strategy, resumed=resumed):
                self._line("Run", f"{run} ({strategy}{', goes on' if resumed else ''})")
            case ev.Thought(text=text):
                self._thought.append(text)
            case ev.Called(call=call):
                self._open += 1
                self._line("Action", said(call))
            case ev.Observed(call=call, observation=observation):
                which = f" of {call.tool}" if self._open > 1 else ""
                self._open = max(0, self._open - 1)
                text, missing = cut(observation.text, self._most)
                self._line(f"Observation{which}", text)
                for note in (missing, f"({observation.note})" if observation.note else ""):
                    if note:
                        self._write(f"  {note}")
            case ev.Executing(code=code):
                self._line("Code", code)
            case ev.Executed(ran=ran):
                text, missing = cut(ran.output, self._most)
                for label, shown in (("Output", text), ("Error", trouble_in(ran))):
                    if shown:
                        self._line(label, shown)
                if missing:
                    self._write(f"  {missing}")
            case ev.Replied():
                self._write(f"  ({spent(event)})")
            case ev.Noted(kind=kind, text=text):
                self._line(f"Note ({kind})", text)
            case _:
                pass

    def close(self) -> None:
        """Write what is still held back."""
        self._flush_thought()

    def _flush_thought(self) -> None:
        text = "".join(self._thought).strip()
        self._thought.clear()
        if text:
            self._line("Thought", text)

    def _line(self, label: str, text: str) -> None:
        self._write(f"{label}: " + clean(text).strip("\n").replace("\n", "\n  "))

    def _write(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def said(call: Any) -> str:
    """A call as it is shown: the tool's name and its input."""
    return f"{call.tool} {brief_json(call.input)}".rstrip()


def trouble_in(ran: Ran) -> str:
    """Why a piece of code ended early: `ZeroDivisionError on line 3: division by zero`; "" where it did not."""
    error = ran.error
    if error is None:
        return ""
    return f"{error.type}{f' on line {error.line}' if error.line else ''}: {error.message}"


def spent(event: ev.Replied) -> str:
    """What one model call took: `step 2 · act · 812 + 45 tokens · 1.2 s · 0.00012 USD`."""
    cost = "" if event.cost is None else f" · {money(event.cost)}"
    return f"step {event.step} · {event.phase} · {tokens(event.usage)} · {duration(event.seconds)}{cost}"


def watch_for(out: TextIO, *, quiet: bool = False, most: int | None = SHOWN) -> Watch:
    """What fits where the events go: a drawing in a terminal, lines in a pipe."""
    if quiet:
        return Unwatched()
    if out.isatty():
        from plait.cli.draw import Braid

        return Braid(out, most)
    return Lines(out, most)
