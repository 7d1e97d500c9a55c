"""Follows a reply while the model writes it, for observers of the run and for loops that wait for lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from plait.core import CheckAnswer, Piece, Reply, Splitter, WaitResult
from plait.core import events as ev
from plait.journal.keys import read_key
from plait.loops import splitter_of
from plait.runtime.guard import Entry, Finish
from plait.runtime.partial_output import PartialAnswer, find_answer_tool, is_only_answer

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


class ReplyListener:
    """Splits the text of an unfinished reply into events, and passes lines to a loop that waits for them.

    `answer_tool` is the tool whose input is a typed answer; "" for none.
    """

    def __init__(
        self,
        n: int,
        step: int,
        split: Callable[[], Splitter] | None,
        say: Callable[[ev.Event], None],
        on_piece: Callable[[WaitResult], None] | None,
        again: bool = False,
        follow_answer: Callable[[], PartialAnswer] | None = None,
        only_answer: bool = False,
        answer_tool: str = "",
    ) -> None:
        self._n, self._step, self._split, self._say, self._on_piece = n, step, split, say, on_piece
        self._follow_answer, self._only_answer = follow_answer, only_answer
        self._answer = follow_answer() if follow_answer is not None else None
        self._splitter = split() if split is not None else None
        self._again = again
        self._fed = False
        self._line = ""
        self.followed_tool = answer_tool

    def __call__(self, text: str) -> None:
        """Add the next part of the reply."""
        self._fed = True
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
        """Start again: the attempt failed, so its text is not part of the reply."""
        if self._fed:
            self._splitter = self._split() if self._split is not None else None
            self._answer = self._follow_answer() if self._follow_answer is not None else None
            self._again, self._fed, self._line = True, False, ""

    def close(self, reply: Reply) -> None:
        """End the reply."""
        if self._splitter is not None:
            self._show(self._splitter.close(bool(reply.calls) or reply.finish == "broken"))

    def _show(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.kind != "observation":
                self._say(ev.WRITTEN[piece.kind](self._step, piece.text))
            if piece.kind == "answer" and self._answer is not None and not self._only_answer:
                self._answer.add(piece.text)


def listen_to_reply(engine: Engine, entry: Entry, *, again: bool) -> ReplyListener | None:
    """Return the listener for the text of an unfinished reply; None if nobody needs it.

    `again`: another process made attempts, and pieces of them may have been taken, so the reply begins again.
    """
    effect, step, loop, output = entry.effect, entry.step, engine.run_spec.loop, engine.run_spec.output
    split = (lambda: splitter_of(loop, effect.phase)) if engine.is_watched else None
    on_piece = engine.performers.started.add_piece if effect.watch else None
    if split is None and on_piece is None:
        return None

    def follow_answer() -> PartialAnswer:
        return PartialAnswer(output, lambda value: engine.say(ev.PartialOutput(step, value)))

    def say_but_answers(event: ev.Event) -> None:
        if not isinstance(event, ev.Answer | ev.Text):
            engine.say(event)

    held = engine.chain.holds_text(CheckAnswer, Finish)  # no text of an answer before the guards have seen it
    partial_answer = follow_answer if split is not None and output.spec is not None and not held else None
    say, tool = say_but_answers if held else engine.say, find_answer_tool(effect, output.spec)
    only_answer, n = is_only_answer(effect, output.spec), read_key(entry.key).n
    return ReplyListener(n, step, split, say, on_piece, again, partial_answer, only_answer, tool)
