"""Calls that go on in the background: their act ends at once, and their results come before a later model call.

Such a call is an entry like any other, with its guards, its intent and its result. Only its end is not waited for. The
loop gets a line in place of the result, which follows from the call alone. `RunNews` delivers the result: then the
guards see it, and the record says before which model call it came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET

from plait.core import Observation, traits_of
from plait.core.text import mark_lines, shorten
from plait.runtime.chain import Admitted
from plait.runtime.guard import Entry, Suspend

if TYPE_CHECKING:
    from plait.runtime.engine import Engine

STARTED = "It was started in the background as call {key}. Its result comes later: go on with other work."
"""What the loop gets in place of the result."""


class BackgroundCalls:
    """The calls of a run in the background. All that are not delivered yet are open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, Admitted] = {}
        self._tasks: dict[str, asyncio.Task[Observation]] = {}
        self.begun: set[str] = set()
        """The keys of the calls that this process has begun, or found on record."""

    def takes(self, entry: Entry) -> bool:
        """Return whether a call goes on in the background. A plan and a piece of code wait for what they go on with. If
        its result came later by the record, it does, whatever the tool is now."""
        if entry.tool is None or not entry.tool.background or entry.asked.by_code:
            return entry.key in self._engine.journal.delivered
        return not traits_of(self._engine.run_spec.loop).links_calls

    def begin(self, admitted: Admitted) -> None:
        """Begin a call, or take it from the record."""
        key, journal = admitted.entry.key, self._engine.journal
        self.begun.add(key)
        journal.in_background.add(key)
        self._open[key] = admitted
        if admitted.found.value is UNSET and not journal.replay:
            self._tasks[key] = asyncio.ensure_future(self._engine.carry_out(admitted))

    def list_ended(self) -> list[str]:
        """Return the keys of the open calls that have a result, in the order in which they began."""
        ended = []
        for key, admitted in self._open.items():
            task = self._tasks.get(key)
            is_over = task is not None and task.done() and not isinstance(task.exception(), Suspend)
            if is_over or (task is None and admitted.found.value is not UNSET):
                ended.append(key)
        return ended

    async def end_all(self) -> list[Suspend]:
        """Let all calls come to their end. Return what waits for the user. Raises what broke the process."""
        ended = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for why in ended:
            if isinstance(why, BaseException) and not isinstance(why, Exception):
                raise why
        return [why for why in ended if isinstance(why, Suspend)]

    async def wait(self) -> bool:
        """Wait until all open calls have ended. Returns whether there is one. Raises `Suspend` if one of them waits for
        the user; it goes on with the next wait."""
        for key, admitted in self._open.items():
            if key not in self._tasks and admitted.found.value is UNSET:
                self._tasks[key] = asyncio.ensure_future(self._begin_again(admitted))
        waits = await self.end_all()
        for key, task in list(self._tasks.items()):
            if isinstance(task.exception(), Suspend):
                self._open[key].release()
                del self._tasks[key]
        if waits:
            raise Suspend(*(each for why in waits for each in why.questions))
        return bool(self._open)

    async def _begin_again(self, before: Admitted) -> Observation:
        old, engine = before.entry, self._engine
        entry = Entry(old.run, old.key, old.step, old.asked, old.asked, old.tool, fixed=old.fixed, started=old.started)
        self._open[old.key] = admitted = await engine.chain.admit(entry, before.performer)
        result: Observation = await engine.carry_out(admitted)
        return result

    async def deliver(self, key: str) -> str:
        """Return what the model reads of a call that has ended, when its guards have seen the result."""
        engine, admitted = self._engine, self._open[key]
        task = self._tasks.get(key)
        seen: Observation = await engine.chain.settle(admitted, admitted.found.value if task is None else task.result())
        del self._open[key]
        self._tasks.pop(key, None)
        engine.performers.tools.report(admitted.entry, seen)
        context = engine.run_spec.context
        text = mark_lines(shorten(seen.with_note, context.observation_chars)[0])
        return context.prompts.render("background", {"call": key, "tool": admitted.entry.effect.tool, "text": text})

    async def close(self) -> None:
        """Cancel what goes on, and wait for its end."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for key, admitted in self._open.items():
            ended = self._tasks.get(key)
            if ended is not None and not ended.cancelled() and ended.exception() is None:
                await admitted.tell(ended.result())
            elif ended is not None or admitted.found.value is not UNSET:
                admitted.release()
