"""Performs act effects: the loop breaker, leave where it is needed, then the calls, side by side.

A call is on the record before it begins, unless its tool may be called again: then nothing can be lost, and its
beginning is written when the call takes longer than `LONG`, or with the next intent. A call that began and has no
recorded end is in doubt when the run is resumed: it is made again only if its tool may be called again, or the
policy says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from plait.core import Act, Call, LimitNear, Observation
from plait.core import events as ev
from plait.core.errors import JournalError
from plait.journal.log import Entry
from plait.journal.records import Acting, Begun, ObservedRecord, Thrown
from plait.runtime.calling import make_call
from plait.runtime.job import Desk, RecordEnds, differs, input_of, lines_of, sentence
from plait.runtime.past import PastEffect

LONG = 0.05
"""Seconds: a call that takes longer is on the record while it goes on."""


class Actor:
    """Performs the act effects of one run."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._writing: asyncio.Future[None] | None = None

    async def perform(self, n: int, effect: Act, past: PastEffect) -> tuple[Observation, ...]:
        step = self.desk.meter.steps
        calls = effect.calls
        if past.thrown is not None:
            self.desk.meter.was_near(past.thrown.limit, past.thrown.detail)
            raise LimitNear(past.thrown.limit, past.thrown.detail)
        if past.acting is not None and past.acting.calls != calls:
            raise differs(n, step, lines_of(past.acting.calls), lines_of(calls))
        results: dict[int, Observation] = dict(past.observed)
        if past.acting is None and not past.waits:
            self.desk.meter.before_act()
            for call in calls:
                if why := self.desk.breaker.before(call):
                    near = self.desk.meter.conclude("loop", why)
                    await self.desk.log.append((Thrown(n, step, "LimitNear", near.limit, near.detail), None))
                    self.desk.say(ev.Noted(step, "loop", sentence(why)))
                    raise near
        open_calls = [i for i in range(len(calls)) if i not in results]
        if open_calls and self.desk.job.replay:
            raise RecordEnds
        if open_calls:
            results.update(await self._make(n, step, calls, open_calls, past))
        ordered = tuple(results[i] for i in range(len(calls)))
        for call, observation in zip(calls, ordered, strict=True):
            self.desk.breaker.after(call, observation)
        return ordered

    async def _make(
        self, n: int, step: int, calls: tuple[Call, ...], todo: list[int], past: PastEffect
    ) -> dict[int, Observation]:
        """Make the calls that have no result yet: those in doubt by policy, those that need leave after it is given."""
        results: dict[int, Observation] = {}
        for i in list(todo):
            if i in past.begun and not self._may_repeat(calls[i]):
                results[i] = await self._ended(n, i, step, calls[i], _in_doubt(calls[i]))
                todo.remove(i)
        need = [i for i in todo if i not in past.begun and self._needs_leave(calls[i])]
        free = tuple(i for i in todo if i not in need)
        intent: list[Entry] = []
        if past.acting is None:
            intent.append((Acting(n, step, calls, free), None))
        elif free:
            intent.append((Begun(n, free), None))
        if intent and all(self._repeatable(calls[i]) for i in free):
            self.desk.log.buffer(*intent)
            later = asyncio.get_running_loop().call_later(LONG, self._write)
            try:
                results.update(await self._side_by_side(n, step, calls, free))
            finally:
                later.cancel()
        else:
            if intent:
                await self.desk.log.append(*intent)
            results.update(await self._side_by_side(n, step, calls, free))
        for i in need:
            told = past.told.get(i) or await self.desk.wait(
                n, step, i, "approval", f"May '{calls[i].tool}' be called with {input_of(calls[i])}?", past
            )
            if told.approved:
                await self.desk.log.append((Begun(n, (i,)), None))
                results.update(await self._side_by_side(n, step, calls, (i,)))
            else:
                text = f"The person refused this call: {told.text}" if told.text else "The person refused this call."
                results[i] = await self._ended(n, i, step, calls[i], Observation(text, trouble="refused"))
        return results

    async def _side_by_side(
        self, n: int, step: int, calls: tuple[Call, ...], indexes: tuple[int, ...]
    ) -> dict[int, Observation]:
        async def one(i: int) -> Observation:
            self.desk.say(ev.Called(step, calls[i]))
            seconds = self.desk.job.limits.tool_seconds
            return await self._ended(n, i, step, calls[i], await make_call(self.desk.job.tools, calls[i], seconds))

        if len(indexes) == 1:
            return {indexes[0]: await one(indexes[0])}
        async with asyncio.TaskGroup() as group:
            tasks = {i: group.create_task(one(i)) for i in indexes}
        return {i: task.result() for i, task in tasks.items()}

    async def _ended(self, n: int, i: int, step: int, call: Call, observation: Observation) -> Observation:
        """Put a call's end on the record, with what the loop breaker has to say about it."""
        note = self.desk.breaker.remark(call, observation)
        if note:
            observation = Observation(
                observation.text, observation.trouble, note, observation.value, observation.seconds
            )
        entry = (ObservedRecord(n, i, observation), None)
        if self._repeatable(call):
            self.desk.log.buffer(entry)
        else:
            # The end of a call that must not be made twice is on disk before anything else happens.
            await self.desk.log.append(entry)
        self.desk.say(ev.Observed(step, call, observation))
        return observation

    def _write(self) -> None:
        """Write what waits in line; where that fails the next append says so."""
        with suppress(JournalError):
            self._writing = asyncio.ensure_future(_quietly(self.desk.log.append()))

    def _repeatable(self, call: Call) -> bool:
        tool = self.desk.job.tools.get(call.tool)
        return tool is None or tool.spec.repeatable

    def _may_repeat(self, call: Call) -> bool:
        return self._repeatable(call) or self.desk.job.in_doubt == "repeat"

    def _needs_leave(self, call: Call) -> bool:
        approve, tool = self.desk.job.approve, self.desk.job.tools.get(call.tool)
        if tool is None or approve == "never" or approve == "plan":
            return False
        if approve == "always":
            return True
        return tool.spec.has_effects if approve == "effects" else approve(call)


async def _quietly(writing: Awaitable[None]) -> None:
    with suppress(JournalError):
        await writing


def _in_doubt(call: Call) -> Observation:
    return Observation(
        f"Error: the run was interrupted while '{call.tool}' was being called. Whether the call took effect is not "
        "known, and it was not repeated.",
        trouble="in_doubt",
    )
