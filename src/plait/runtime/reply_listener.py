"""Follows a reply while the model writes it, for observers of the run and for loops that wait for lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plait.core import CheckAnswer, Piece, Reply, WaitResult
from plait.core import events as ev
from plait.core.output import FINAL_ANSWER
from plait.journal.keys import read_key
from plait.loops import splitter_of
from plait.models.wires.odd_json import mend
from plait.runtime.agents.output import OutputType
from plait.runtime.guard import Entry, Finish

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


class ReplyListener:
    """Splits the text of an unfinished reply into events, and passes lines to a loop that waits for them. `again`:
    another process made attempts, and pieces of them may have been taken, so the reply begins again."""

    def __init__(self, engine: Engine, entry: Entry, again: bool) -> None:
        self._engine, self._step, self._key, self._n = engine, entry.step, entry.key, read_key(entry.key).n
        self._effect = effect = entry.effect
        self._on_piece = engine.performers.started.add_piece if effect.watch else None
        self._holds_answers = engine.chain.holds_text(CheckAnswer, Finish)
        """Whether no text of an answer is shown before the guards have seen it."""
        spec = engine.run_spec.output.spec
        self._only_answer = spec is not None and effect.schema is not None and effect.schema == spec.request_schema
        """Whether the whole text of the reply is the typed answer, because its schema is that of the answer."""
        offered = [tool.name for tool in effect.tools if spec is not None and tool.parameters == spec.request_schema]
        self.followed_tool = FINAL_ANSWER if FINAL_ANSWER in offered else ""
        """The tool whose input is a typed answer; "" for none."""
        self._again = again
        self._begin()

    def _begin(self) -> None:
        run_spec, is_watched = self._engine.run_spec, self._engine.on_event is not None
        self._splitter = splitter_of(run_spec.loop, self._effect.phase) if is_watched else None
        follows = is_watched and run_spec.output.spec is not None and not self._holds_answers
        show = (lambda value: self._engine.say(ev.PartialOutput(self._step, value))) if follows else None
        self._answer = PartialAnswer(run_spec.output, show) if show else None
        self._fed, self._line = False, ""

    def __call__(self, text: str) -> None:
        """Add the next part of the reply."""
        self._fed, (text, _) = True, mend(text)
        if self._answer is not None and self._only_answer:
            self._answer.add(text)
        if self._splitter is not None:
            self._show(self._splitter.feed(text))
        if self._on_piece is not None:
            whole, newline, self._line = (self._line + text).rpartition("\n")
            if newline:
                self._on_piece(WaitResult(self._n, done=False, piece=whole + newline, again=self._again))
                self._again = False

    def add_input(self, text: str) -> None:
        """Add the next part of the input of the answer tool."""
        self._fed = True
        if self._answer is not None:
            self._answer.add(text)

    def again(self) -> None:
        """Drop the text so far: the attempt failed, so it is in no reply."""
        if self._fed:
            self._again = True
            self._engine.written.drop(self._key)
            self._begin()

    def close(self, reply: Reply) -> None:
        """End the reply."""
        if self._splitter is not None:
            self._show(self._splitter.close(bool(reply.calls) or reply.finish == "broken"))
        self._engine.written.end(self._key)

    def _show(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.kind != "observation" and not (self._holds_answers and piece.kind in ("answer", "text")):
                self._engine.written.add(self._step, self._key, piece.kind, piece.text)
            if piece.kind == "answer" and self._answer is not None and not self._only_answer:
                self._answer.add(piece.text)


class PartialAnswer:
    """The answer in one reply, as far as it is written. `show` gets each new value."""

    def __init__(self, output: OutputType[Any], show: Callable[[Any], None]) -> None:
        self._output, self._show = output, show
        self._text = ""
        self._last: Any = None

    def add(self, text: str) -> None:
        """Add the next part of the answer's text."""
        self._text += text
        value = self._output.make_partial(self._text)
        try:
            is_new = value is not None and bool(value != self._last)
        except Exception:  # the user's own comparison, of a half value
            is_new = True
        if is_new:
            self._last = value
            self._show(value)
