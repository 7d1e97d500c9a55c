"""Draws a run's events in a terminal: three strands of three colours, each text as it is being written."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.status import Status
from rich.text import Text

from plait.cli.text import SHOWN, brief_json, clean, cut
from plait.cli.watch import said, spent, trouble_in
from plait.core import Event
from plait.core import events as ev
from plait.models.stages import Stage

STRANDS = {"thought": "cyan", "action": "yellow", "observation": "green", "note": "magenta"}
LABEL = 14
"""Cells of the column with the labels."""

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class Waiting:
    """What a spinner says while a model is asked: what goes on before its first word, and for how many seconds."""

    def __init__(self, what: str, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._stage = Stage(model, clock=clock)

    def __rich__(self) -> Text:
        stage, seconds = self._stage.now()
        return Text(" · ".join(filter(None, (self._what, stage, f"{seconds:.0f} s"))), style="dim")


class Braid:
    """Text streams in word by word beside its strand. `most`: characters shown of an observation."""

    def __init__(self, out: TextIO, most: int | None = SHOWN) -> None:
        self._console = Console(file=out, highlight=False, emoji=False, markup=False)
        self._most = most
        self._strand = ""
        """The strand that is being written, "" between two."""
        self._column = 0
        self._word = ""
        self._blank = ""
        self._status: Status | None = None
        self._style = ""
        self._open = 0

    def __call__(self, event: Event) -> None:
        self._quiet()
        match event:
            case ev.Began(run=run, strategy=strategy, resumed=resumed):
                self._dim(f"run {run} · {strategy}{' · goes on' if resumed else ''}")
            case ev.Asked(phase=phase, model=model):
                self._end()
                self._spin(Waiting(f"{phase} · {clean(model)}", model))
            case ev.Thought(text=text):
                self._stream("thought", text)
            case ev.Action():
                # Its syntax is for the loop to read; it is drawn when it is read and begins.
                self._end()
                self._spin("writes an action")
            case ev.Called(call=call):
                self._open += 1
                self._block("action", said(call))
                if self._open == 1:
                    self._spin(f"{clean(call.tool)} works")
            case ev.Observed(call=call, observation=observation):
                text, missing = cut(observation.text, self._most)
                which = f"{call.tool} {brief_json(call.input)}: " if self._open > 1 else ""
                self._open = max(0, self._open - 1)
                self._block("observation", which + text, failed=not observation.ok)
                for note in (missing, observation.note):
                    if note:
                        self._dim(" " * LABEL + note)
            case ev.Executing(code=code):
                self._block("action", code)
                self._spin("the code runs")
            case ev.Executed(ran=ran):
                text, missing = cut(ran.output, self._most)
                if text:
                    self._block("observation", text)
                if missing:
                    self._dim(" " * LABEL + missing)
                if ran.error is not None:
                    self._block("observation", trouble_in(ran), failed=True)
            case ev.Replied():
                self._end()
                self._dim(" " * LABEL + spent(event))
            case ev.Noted(kind=kind, text=text):
                self._block("note", f"{kind}: {text}")
            case ev.Ended():
                self._end()
            case _:
                pass

    def close(self) -> None:
        """End the line that is being written, and the spinner."""
        self._quiet()
        self._end()

    # -- a strand

    def _block(self, strand: str, text: str, *, failed: bool = False) -> None:
        self._end()
        self._style = "red" if failed else ""
        self._stream(strand, text.strip("\n"))
        self._end()

    def _stream(self, strand: str, text: str) -> None:
        text = clean(text)
        if strand != self._strand:
            style = self._style
            self._end()
            if not (text := text.lstrip()):
                return
            self._strand, self._style = strand, style
            self._label(strand)
        for piece in _PIECES.findall(text):
            self._put(piece)

    def _put(self, piece: str) -> None:
        """A word, a run of blanks or a line end. A word is held back until what follows shows it is whole."""
        if piece == "\n":
            self._flush()
            self._blank += "\n"
        elif piece.isspace():
            self._flush()
            self._blank += piece
        else:
            self._word += piece

    def _flush(self) -> None:
        if not self._word:
            return
        # Blank lines are drawn only when something follows them, so a strand never ends in empty lines.
        for _ in range(self._blank.count("\n")):
            self._new_line()
        blank = self._blank.rpartition("\n")[2].replace("\t", "    ")
        room = max(20, self._console.width - LABEL)
        if self._column + len(blank) + cell_len(self._word) > room and self._column:
            self._new_line()
            blank = ""
        self._write(blank, "")
        self._column += len(blank)
        word = self._word
        while self._column + cell_len(word) > room:
            # Longer than a line by itself (a URL, base64): broken where the line ends.
            head = set_cell_size(word, room - self._column).rstrip() or word[:1]
            self._write(head, self._style)
            word = word[len(head) :]
            self._new_line()
        self._write(word, self._style)
        self._column += cell_len(word)
        self._word = self._blank = ""

    def _label(self, strand: str) -> None:
        colour = STRANDS[strand]
        self._write(f"{strand:<{LABEL - 2}}", f"bold {colour}")
        self._write("│ ", colour)
        self._column = 0

    def _new_line(self) -> None:
        self._write("\n" + " " * (LABEL - 2), "")
        self._write("│ ", STRANDS[self._strand])
        self._column = 0

    def _end(self) -> None:
        if self._strand:
            self._flush()
            self._write("\n", "")
        self._strand = self._word = self._blank = self._style = ""
        self._column = 0

    def _write(self, text: str, style: str) -> None:
        if text:
            self._console.print(Text(text, style=style, end=""), end="", soft_wrap=True)

    def _dim(self, text: str) -> None:
        self._end()
        self._console.print(Text(clean(text), style="dim"), soft_wrap=True)

    def _spin(self, text: str | Waiting) -> None:
        self._status = self._console.status(Text(text, style="dim") if isinstance(text, str) else text)
        self._status.start()

    def _quiet(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
