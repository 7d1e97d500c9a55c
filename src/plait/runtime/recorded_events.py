"""A record told again as events, so that what is shown live and what is shown later is one thing."""

from __future__ import annotations

from collections.abc import Iterable

from plait import loops
from plait.core import Call, Event, Loop, Reply
from plait.core import events as ev
from plait.core.errors import ConfigError
from plait.journal.records import (
    Acting,
    Begun,
    Got,
    NoteRecord,
    ObservedRecord,
    RanRecord,
    Resumed,
    Row,
    RunHead,
    Thinking,
    Thought,
    Thrown,
    Told,
    Waits,
)
from plait.loops import splitter_of
from plait.runtime.run_context import as_told, input_of


def recorded_loop(head: RunHead) -> Loop | None:
    """The loop of a run, which tells its thoughts and actions apart; None where it is not installed here."""
    try:
        return loops.make(head.loop["name"], head.loop["options"])
    except ConfigError:
        return None


def retell(rows: Iterable[Row], loop: Loop | None) -> list[Event]:
    """The events of a record. `loop` tells thought, action and answer apart; without it all is thought."""
    events: list[Event] = []
    asked: dict[int, Thinking] = {}
    calls: dict[int, tuple[int, tuple[Call, ...]]] = {}
    for row in rows:
        record = row.record
        match record:
            case Thinking():
                if record.attempt == 0:
                    events.append(ev.Asked(record.step, record.phase, record.model))
                asked[record.n] = record
            case Resumed(lost=lost) if lost:
                events.append(ev.Noted(0, "journal", lost))
            case Got(error=error) if error:
                step = asked[record.n].step if record.n in asked else 0
                events.append(ev.Noted(step, "error", error))
            case Thought(n=n, reply=reply):
                intent = asked[n]
                events.extend(_pieces(intent, reply, loop))
                events.append(
                    ev.Replied(
                        intent.step,
                        intent.phase,
                        intent.model,
                        reply.text,
                        reply.usage,
                        reply.seconds,
                        reply.cost,
                    )
                )
            case Acting(n=n, step=step):
                calls[n] = (step, record.calls)
                events.extend(ev.Called(step, record.calls[i]) for i in record.begun)
            case Begun(n=n):
                step, made = calls[n]
                events.extend(ev.Called(step, made[i]) for i in record.begun)
            case ObservedRecord(n=n, i=i, observation=observation):
                step, made = calls[n]
                events.append(ev.Observed(step, made[i], observation))
            case RanRecord(step=step, ran=ran, code=code):
                if code is not None:
                    events.append(ev.Executing(step, code))
                events.append(ev.Executed(step, ran))
            case NoteRecord(step=step, kind=kind, text=text):
                events.append(ev.Noted(step, kind, text))
            case Thrown(kind="Unsupported" | "LimitReached"):
                pass  # The loop says itself what it makes of it.
            case Thrown(step=step, detail=detail):
                events.append(ev.Noted(step, "limit", detail))
            case Waits(step=step, kind=kind, text=text):
                events.append(ev.Noted(step, kind, text))
            case Told(n=n, i=i, text=text, approved=approved):
                leave = "approved" if approved else f"refused: {text}".removesuffix(": ")
                if record.input and n in calls:
                    step, made = calls[n]
                    calls[n] = (step, as_told(made, {i: record}))
                    leave = f"approved, with {input_of(calls[n][1][i])}"
                events.append(ev.Noted(0, "told", text if approved is None else leave))
            case _:
                pass
    return events


def _pieces(intent: Thinking, reply: Reply, loop: Loop | None) -> list[Event]:
    if loop is None:
        return [ev.Thought(intent.step, reply.text)]
    splitter = splitter_of(loop, intent.phase)
    joined: list[tuple[str, str]] = []
    for piece in (*splitter.feed(reply.text), *splitter.close(bool(reply.calls))):
        if joined and joined[-1][0] == piece.kind:
            joined[-1] = (piece.kind, joined[-1][1] + piece.text)
        else:
            joined.append((piece.kind, piece.text))
    return [ev.WRITTEN[kind](intent.step, part) for kind, part in joined if kind in ev.WRITTEN]
