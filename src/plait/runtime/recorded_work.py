"""Tells the guards of a run what earlier processes recorded, before the run goes on.

Otherwise new work could be admitted before the guards know of recorded work that the walk comes to later. A guard that
child runs have, too (`Guard.for_child` returns it), also gets their work, of ended ones as well: these are not walked
again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from plait.core import Think
from plait.core.errors import ConfigError, UnknownRun
from plait.journal.entries import ModelAttempt
from plait.journal.store import read_timeline
from plait.journal.timeline import Timeline
from plait.models.base import Model
from plait.runtime.calls.bound_calls import BoundCall
from plait.runtime.chain import raise_named
from plait.runtime.guard import Attempt, Entry, Guard, StartChild

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


async def recall_work(engine: Engine) -> None:
    """Tell the guards each attempt, model call, tool call and child run on record. Raises `JournalError`."""
    guards = [guard for guard in engine.chain.guards if type(guard).recall is not Guard.recall]
    if not guards or not (rows := engine.run_spec.past.rows):
        return
    below, seen = [guard for guard in guards if guard.for_child(None) is guard], {engine.run_id}
    left = _recall_run(engine, Timeline(rows, run=engine.run_id), guards)
    while left:  # without recursion: a journal from elsewhere may nest runs at any depth, or in a circle
        entry, end = left.pop()
        _tell(guards if entry.run == engine.run_id else below, entry, end)
        if below and engine.store is not None and (child := entry.effect.run) not in seen:
            seen.add(child)
            with suppress(UnknownRun):  # it has not begun, or was deleted
                left += _recall_run(engine, await read_timeline(engine.store, child, bodies=False), below)


def _recall_run(engine: Engine, timeline: Timeline, guards: Sequence[Guard]) -> list[tuple[Entry, Any]]:
    """Tell the guards the work of one run. Returns the entries of its child runs and their ends, the last first."""
    run, tools = timeline.run, engine.run_spec.tools
    see_attempts = any(_sees(guard, Attempt) for guard in guards)

    def make_entry(key: str, step: int, effect: Any, result: Any, by_tool: bool) -> Entry:
        return Entry(run, key, step, effect, effect, recorded=result is not None, begun=True, by_tool=by_tool)

    for asked in timeline.model_calls:
        think, by_tool = Think(asked.phase, max_tokens=asked.last.max_tokens), asked.i >= 0
        for each in asked.attempts if see_attempts else ():
            attempt = Attempt(think, _find_model(engine, each), each.request, each.max_tokens, each.number)
            key = f"{asked.key}a{each.number}"
            _tell(guards, make_entry(key, asked.step, attempt, each.response, by_tool), each.response)
        _tell(guards, make_entry(asked.key, asked.step, think, asked.reply, by_tool), asked.reply)
    for call in timeline.tool_calls:
        if call.begun or call.observation is not None:  # else the user was asked about it, and it is not made yet
            tool = tools.get(call.call.tool) if run == engine.run_id else None
            entry = Entry(run, call.key, call.step, call.planned, call.call, tool, BoundCall(call.call), begun=True)
            entry.recorded, entry.changed_by = call.observation is not None, call.changed_by
            _tell(guards, entry, call.observation)
    return [
        (make_entry(each.key, each.step, StartChild(None, each.question, each.run), each.end, True), each.end)
        for each in reversed(timeline.children)
    ]


def _find_model(engine: Engine, attempt: ModelAttempt) -> Model:
    """Return the model of a recorded attempt. One that the run does not have any more has only its name."""
    spec, run_spec = attempt.model, engine.run_spec
    for find in (partial(run_spec.phases.find_model, attempt.phase), run_spec.find_model):
        with suppress(ConfigError):
            if (model := find(spec)).spec == spec:
                return model
    from plait.models.chat import ChatModel  # its import takes long

    return ChatModel(spec=spec, name=spec, endpoint="")


def _sees(guard: Guard, kind: type) -> bool:
    return kind in guard.points or kind in (guard.points_after or ())


def _tell(guards: Iterable[Guard], entry: Entry, result: Any) -> None:
    for guard in guards:
        if _sees(guard, type(entry.effect)):
            try:
                guard.recall(entry, result)
            except BaseException as why:
                raise_named(guard, why)
