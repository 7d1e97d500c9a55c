"""A run's record as events, so that live output and later output are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from plait import loops
from plait.core import Event, Loop
from plait.core import events as ev
from plait.core.errors import ConfigError
from plait.core.text import escape_hidden
from plait.journal.codec import encode
from plait.journal.entries import (
    CodeTurn,
    LoopException,
    ModelCall,
    Moment,
    OtherWork,
    Question,
    RecordedNote,
    ToolCall,
)
from plait.journal.records import Decision, Resumption, RunHead
from plait.journal.timeline import Timeline
from plait.loops import splitter_of
from plait.runtime.signals import describe_signal, read_signal
from plait.runtime.written_text import WrittenText


def recorded_loop(head: RunHead) -> Loop | None:
    """Return the loop of a run, which separates thoughts from actions; None if the loop is not installed."""
    try:
        return loops.make(head.loop["name"], head.loop["options"])
    except ConfigError:
        return None


class RecordedEvents:
    """Passes the events of a record to `say`, moment by moment, as a listener received them: each text in one piece,
    then its mark. `loop` separates thoughts, actions and answers; without it, all text is thought."""

    def __init__(self, say: Callable[[Event], None], loop: Loop | None, *, says_text: bool = True) -> None:
        """`says_text`: what may be the answer or a thought is a `Text` first, as it was."""
        self._say, self._loop, self._says_text = say, loop, says_text
        self._written, self._step = WrittenText(say), 0

    def add(self, moment: Moment) -> None:
        for event in _events_at(moment, self._loop, self._says_text):
            self._step = max(self._step, getattr(event, "step", 0))
            if isinstance(event, ev.Thought | ev.Action | ev.Answer | ev.Text):
                self._written.add(event.step, "", ev.kind_of(event), event.text)
                continue
            if isinstance(event, ev.Asked) and not event.phase.startswith("tool:"):
                self._written.begin()
            elif isinstance(event, ev.Replied):
                self._written.end("")
            self._say(event)

    def finish(self, answer: Any = UNSET) -> None:
        """Mark what is left. `answer` is the run's; if it is not given, the last one written is it."""
        self._written.finish(self._step, answer)


def make_events(timeline: Timeline, loop: Loop | None, answer: Any = UNSET) -> list[Event]:
    """Return the events of a record, each text in one piece of its kind. `answer` is the run's; if it is not given, the
    last one written is it."""
    events: list[Event] = []
    recorded = RecordedEvents(events.append, loop, says_text=False)
    for moment in timeline.moments:
        recorded.add(moment)
    recorded.finish(answer)
    kinds = {event.part: event.kind for event in events if isinstance(event, ev.Marked)}
    for i, event in enumerate(events):
        if isinstance(event, ev.Thought | ev.Action | ev.Answer):
            kind = kinds[event.part]
            events[i] = ev.WRITTEN[kind](event.step, event.text, event.part) if kind != "dropped" else event
    return [event for event in events if kinds.get(getattr(event, "part", 0)) != "dropped"]


def split_reply(call: ModelCall, loop: Loop | None, says_text: bool = False) -> list[Event]:
    """Split the reply of a model call into thoughts, actions and answers, one piece each. A reply that a tool asked for
    is a note. `says_text`: what is known only at the end of the reply is a `Text` before."""
    if call.reply is None:
        return []
    if call.i >= 0:
        return [ev.Noted(call.step, "tool_model", call.reply.text)]
    if loop is None:
        return [ev.Thought(call.step, call.reply.text)]
    splitter = splitter_of(loop, call.phase)
    joined: list[tuple[str, str]] = []
    for piece in (*splitter.feed(call.reply.text), *splitter.close(bool(call.reply.calls))):
        if joined and joined[-1][0] == piece.kind:
            joined[-1] = (piece.kind, joined[-1][1] + piece.text)
        else:
            joined.append((piece.kind, piece.text))
    hidden = ("observation",) if says_text else ("observation", "text")
    return [ev.WRITTEN[kind](call.step, part) for kind, part in joined if kind not in hidden]


def _events_at(moment: Moment, loop: Loop | None, says_text: bool) -> list[Event]:
    match moment.change, moment.entry:
        case "asked", ModelCall(step=step, last=last):
            return [ev.Asked(step, last.phase, last.model)] if last.number == 0 else []
        case "responded", ModelCall(step=step, last=last) if last.response is not None and last.response.error:
            return [ev.Noted(step, "error", last.response.error)]
        case "replied", ModelCall(step=step, reply=reply) as asked if reply is not None:
            used = (reply.text, reply.usage, reply.seconds, reply.cost, reply.citations)
            replied = ev.Replied(step, asked.phase, asked.model, *used)
            hosted = [ev.HostedCalled(step, each) for each in reply.hosted]
            return [*split_reply(asked, loop, says_text), *hosted, replied]
        case "began", ToolCall(step=step, shown=call):
            return [ev.Called(step, call)]
        case "ended", ToolCall(step=step, shown=call, seen=observation) if observation is not None:
            return [ev.Observed(step, call, observation)]
        case _, CodeTurn(step=step, code=code, ran=ran):
            return [*([ev.Executing(step, code)] if code is not None else []), ev.Executed(step, ran)]
        case _, RecordedNote(step=step, kind=kind, text=text, value=value):
            return [ev.Noted(step, kind, text, value)]
        # The loop reports by itself how it handles the other exceptions.
        case _, LoopException(step=step) as raised if (said := describe_signal(read_signal(raised))) is not None:
            return [ev.Noted(step, *said)]
        case "waits", Question(step=step, kind=kind, text=text):
            return [ev.Noted(step, kind, text)]
        case "answered", Question() as asked:
            return [describe_answer(asked)]
        case _, Resumption(lost=lost) if lost:
            return [ev.Noted(0, "journal", lost)]
        case _, OtherWork() as other:
            return [ev.Noted(other.step, other.work, describe_work(other))]
    return []


def describe_answer(asked: Question) -> ev.Noted:
    """Return the user's answer to a question as a remark."""
    answer = asked.answer
    text = str(answer or "")
    if isinstance(answer, Decision):
        edited = escape_hidden(msgspec.json.encode(asked.edited_input).decode())
        refused = f"refused: {answer.text}".removesuffix(": ")
        text = {"yes": "approved", "edit": f"approved, with {edited}"}.get(answer.action, refused)
    return ev.Noted(0, "told", text, {"by": asked.by, "at": asked.answered})


def describe_work(other: OtherWork) -> str:
    """Return an entry of a kind of work that this version does not know as JSON: what was asked, and the result."""
    asked = encode(other.asked).decode()
    return escape_hidden(f"{asked} -> {encode(other.result).decode()}" if other.has_ended else asked)
