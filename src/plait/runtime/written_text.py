"""The order of the texts of a run, for all loops: the pieces of a text while it is written, then one mark.

Theory of operation. A reply has parts, each of one kind. Its thoughts and actions are marked when it is complete. What
may be the answer is marked later, because only the run knows its answer: a check may reject it, a hook may replace it,
and some loops make it from something else. If the run goes on, it was a thought. At the end the answer is compared with
it: what is missing is sent as a last piece, and an answer that nobody has written comes in one piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from msgspec import UNSET, MsgspecError, Struct

from plait.core import Event, PieceKind
from plait.core import events as ev
from plait.journal.codec import encode


class WrittenText:
    """Says the texts of one run. A `reply` is the key of a model call."""

    def __init__(self, say: Callable[[Event], None]) -> None:
        self._say = say
        self._replies: dict[str, list[_Part]] = {}
        """The parts of the replies that are being written."""
        self._answers: list[_Part] = []
        """What may be the answer, in complete replies."""
        self._count = 0

    def begin(self) -> None:
        """A model is asked, so what is complete was not the answer."""
        answers, self._answers = self._answers, []
        self._mark(answers, "thought")

    def add(self, step: int, reply: str, kind: PieceKind, text: str) -> None:
        """Add a piece. One that says what a "text" was has the whole of it again, of which the rest is sent."""
        parts = self._replies.setdefault(reply, [])
        part = parts[-1] if parts else None
        sent = part.text if part is not None and part.kind == "text" != kind else ""
        if part is not None and sent and (kind != "action" or text.startswith(sent)):
            part.kind, part.blanks = kind, ""
            text = text[len(sent) :] if text.startswith(sent) else ""
        elif part is None or part.kind != kind:
            if not text.strip():
                return
            part = self._begin_part(step, kind)
            parts.append(part)
        self._write(part, text)

    def drop(self, reply: str) -> None:
        """Drop the text of a reply: its attempt failed."""
        self._mark(self._replies.pop(reply, []), "dropped")

    def end(self, reply: str) -> None:
        """Mark the parts of a complete reply."""
        for part in self._replies.pop(reply, []):
            if part.kind in ("answer", "text"):
                self._answers.append(part)
            else:
                self._mark([part], part.kind)

    def finish(self, step: int, answer: Any = UNSET) -> None:
        """Mark what is left. `answer` is the run's, None for none; if it is not known, the last one written is it."""
        for reply in tuple(self._replies):
            self.drop(reply)
        known = None if answer is UNSET else answer
        text = known if isinstance(known, str) else "" if known is None else encode(known).decode()
        taken, rest = None, text
        for part in reversed(self._answers) if answer is not None else ():
            if answer is UNSET or _is_json_of(part.text, answer):
                taken, rest = part, ""
            elif text.startswith(part.text):
                taken, rest = part, text[len(part.text) :]
            if taken is not None:
                self._answers.remove(part)
                break
        self._mark(self._answers, "thought" if answer is None else "dropped")  # the answer was made of it
        self._answers = []
        if taken is None and text:
            taken = self._begin_part(step, "answer")
        if taken is not None:
            if rest:
                self._say(ev.Answer(taken.step, rest, taken.number))
            self._mark([taken], "answer")

    def _begin_part(self, step: int, kind: PieceKind) -> _Part:
        self._count += 1
        return _Part(self._count, step, kind)

    def _write(self, part: _Part, text: str) -> None:
        """Send the next piece of a part, without the blanks at the ends of the part. An action may begin with some."""
        if part.kind != "action":
            text = part.blanks + text if part.pieces else text.lstrip()
            body = text.rstrip()
            part.blanks, text = text[len(body) :], body
        if text:
            part.pieces.append(text if part.kind in ("answer", "text") else "")
            self._say(ev.WRITTEN[part.kind](part.step, text, part.number))

    def _mark(self, parts: list[_Part], kind: Literal["thought", "action", "answer", "dropped"] | PieceKind) -> None:
        for part in parts:
            self._say(ev.Marked(part.step, part.number, kind))  # type: ignore[arg-type]


class _Part(Struct, eq=False):
    """A part of a reply. `blanks` are at its end so far, and not sent. `pieces` are kept if it may be the answer."""

    number: int
    step: int
    kind: PieceKind
    blanks: str = ""
    pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def _is_json_of(text: str, answer: Any) -> bool:
    """Return whether a text is the JSON of an answer, written in another way."""
    if isinstance(answer, str):
        return False
    try:
        return encode(json.loads(text)) == encode(answer)
    except (ValueError, TypeError, OverflowError, RecursionError, MsgspecError):
        return False
