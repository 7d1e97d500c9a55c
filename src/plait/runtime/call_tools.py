"""Performs act effects: the loop breaker, leave where it is needed, then the calls, side by side.

A call is on the record before it begins, unless its tool may be called again: then nothing can be lost, and its
beginning is written when the call takes longer than `LONG`, or with the next intent.

A call is in doubt when it began and nobody knows whether it took effect: its process died, the run was stopped or
cancelled meanwhile, or the call exceeded its time. It is made again only if its tool may be called again, or the policy
says so. An identical call (same tool, same input) needs approval for the rest of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from msgspec import structs

from plait.core import Act, Answered, Call, LimitNear, Observation
from plait.core import events as ev
from plait.core.errors import BadInput, JournalError
from plait.journal.log import Entry
from plait.journal.records import Acting, Begun, ObservedRecord, Thrown
from plait.runtime.call_model import count_attempts
from plait.runtime.call_policy import CallPolicy
from plait.runtime.call_services import ToolServices
from plait.runtime.grounding import describe_findings, refusal, warning
from plait.runtime.output_check import find_objection
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.run_context import (
    ChildWaits,
    HandOff,
    RecordEnds,
    RunContext,
    apply_edits,
    differs,
    input_of,
    lines_of,
    sentence,
)
from plait.runtime.run_hooks import RunHooks
from plait.tools.call_context import offer_services

Invented: TypeAlias = dict[int, tuple[str, ...]]
"""The made-up values of calls, by their index."""

CHANGED = "The person changed this call before it was made. Its input was"
HOOK_CHANGED = "A hook changed this call before it was made. Its input was"

LONG = 0.05
"""Seconds: a call that takes longer is on the record while it goes on."""


@dataclass(frozen=True)
class Group:
    """The calls of one effect as the model `wrote` them, as hooks changed them, and as they are made, what is recorded
    of it, the values in them that the model made up, and the questions of hooks about them. `fixed`: as in `Act`."""

    n: int
    step: int
    wrote: tuple[Call, ...]
    changed: tuple[Call, ...]
    calls: tuple[Call, ...]
    past: PastEffect
    invented: Invented
    fixed: bool = False
    questions: Mapping[int, str] = field(default_factory=dict)


class Actor:
    """Performs the act effects of one run."""

    def __init__(self, run_context: RunContext, hooks: RunHooks) -> None:
        self.run_context = run_context
        self._hooks = hooks
        self._writing: asyncio.Future[None] | None = None
        self._policy = CallPolicy(run_context)

    async def perform(self, n: int, effect: Act, past: PastEffect) -> tuple[Observation, ...]:
        step = self.run_context.meter.steps
        calls = effect.calls
        if past.thrown is not None:
            self.run_context.meter.was_near(past.thrown.limit, past.thrown.detail)
            raise LimitNear(past.thrown.limit, past.thrown.detail)
        if past.planned and past.planned != calls:
            raise differs(n, step, lines_of(past.planned), lines_of(calls))
        self._count_questions(past)
        made = apply_edits(self._hooks.recorded_calls(calls, past), past.answers)
        for i, seen in past.observed.items():
            self._policy.note_doubt(made[i], seen)
        results = await self._hooks.after_tools(n, step, made, past.observed, past)
        if not past.planned and not past.waits:
            self.run_context.meter.before_act()
            for call in calls:
                if why := self.run_context.breaker.before(call):
                    near = self.run_context.meter.conclude("loop", why)
                    await self.run_context.log.append((Thrown(n, step, "LimitNear", near.limit, near.detail), None))
                    self.run_context.say(ev.Noted(step, "loop", sentence(why)))
                    raise near
        open_calls = [i for i in range(len(calls)) if i not in results]
        if open_calls and self.run_context.run_spec.replay:
            raise RecordEnds
        if open_calls:
            results.update(await self._make(n, step, effect, open_calls, past))
        ordered = tuple(results[i] for i in range(len(calls)))
        for call, observation in zip(calls, ordered, strict=True):
            self.run_context.breaker.after(call, observation)
        self._learn(calls, ordered)
        self._follow_outside(step, calls, ordered)
        for call, observation in zip(calls, ordered, strict=True):
            if observation.ok and self._policy.hands_off(call):
                answer = self.run_context.run_spec.output.read(observation.value)
                stopped = observation.stopped
                raise HandOff(Answered(answer) if stopped is None else structs.replace(stopped, answer=answer))
        return ordered

    def _follow_outside(self, step: int, calls: tuple[Call, ...], seen: tuple[Observation, ...]) -> None:
        for call, observation in zip(calls, seen, strict=True):
            remark = self.run_context.outside.add(call, observation)
            if remark and not self.run_context.run_spec.replay:
                self.run_context.remark(step, "outside", remark)

    def _count_questions(self, past: PastEffect) -> None:
        """Count what tools asked models, as far as it is on record."""
        for asked in past.asked.values():
            count_attempts(self.run_context.meter, asked.attempts)
            if asked.reply is not None:
                self.run_context.meter.count_tool_reply(asked.reply.usage, asked.reply.cost)

    def at_once(self, effect: Act) -> bool:
        """Its calls are over as soon as they are begun: made on the event loop itself, and nobody is asked before."""
        run_spec = self.run_context.run_spec
        asks_nobody = all(each in ("never", "plan") for each in run_spec.approve) and run_spec.grounding == "off"
        asks_nobody = asks_nobody and not (self.run_context.outside.asks or self._hooks.sees_tools)
        return asks_nobody and all(
            self._policy.is_inline(call) and self._policy.is_repeatable(call) and not self._policy.waits_always(call)
            for call in effect.calls
        )

    async def _make(self, n: int, step: int, effect: Act, todo: list[int], past: PastEffect) -> dict[int, Observation]:
        """Make the calls that have no result yet: those in doubt by policy, those that need leave after it is given."""
        calls = effect.calls
        if self._needs_nobody(past, calls):
            return await self._begin(Group(n, step, calls, calls, calls, past, {}), tuple(todo))
        results: dict[int, Observation] = {}
        doubtful = [i for i in todo if i in past.begun and not self._policy.may_repeat(calls[i])]
        todo = [i for i in todo if i not in doubtful]
        decided = {i: await self._hooks.before_tool(n, i, step, calls[i], past) for i in todo}
        recorded = self._hooks.recorded_calls(calls, past)
        changed = tuple(decided[i].value if i in decided else recorded[i] for i in range(len(calls)))
        made, invented = apply_edits(changed, past.answers), self._invented(calls, todo)
        asked_by_hooks = {i: each.question for i, each in decided.items() if each.question}
        group = Group(n, step, calls, changed, made, past, invented, effect.fixed, asked_by_hooks)
        for i in doubtful:
            results[i] = await self._ended(group, i, _in_doubt(calls[i]))
        policy = self.run_context.run_spec.grounding
        refused = {}
        if policy == "refuse":
            refused = {i: self._refusal_of_invented(calls[i], found) for i, found in group.invented.items()}
        refused |= {i: f"The call is refused: {each.refusal}" for i, each in decided.items() if each.refusal}
        questions = [i for i in todo if i not in refused and self._policy.is_question(calls[i])]
        lost = [i for i in todo if i not in refused and i not in questions and self._policy.is_lost(group.calls[i])]
        rest = [i for i in todo if i not in (*refused, *questions, *lost)]
        asks = group.invented if policy == "ask" else {}
        # What the person was asked needs their answer, whatever the policy says by now.
        asked = [
            i
            for i in rest
            if i in asks
            or i in past.waits
            or i in group.questions
            or self._policy.needs_approval(group.calls[i], group.fixed)
        ]
        asked += [i for i in rest if i not in asked and self._policy.may_be_lost(calls[i])]
        need = [i for i in sorted(asked) if i not in past.begun]
        results.update(await self._begin(group, tuple(i for i in rest if i not in need)))
        for i in lost:
            results[i] = await self._ended(group, i, _in_doubt(calls[i]))
        for i, text in refused.items():
            results[i] = await self._ended(group, i, Observation(text, trouble="refused"))
        for i in questions:
            results[i] = await self._ended(group, i, await self._asked(group, i))
        for i in need:
            results[i] = await self._with_leave(group, i)
        return results

    def _refusal_of_invented(self, call: Call, found: tuple[str, ...]) -> str:
        return refusal(found, (tool.name for tool in self.run_context.run_spec.tools if tool.name != call.tool))

    def _needs_nobody(self, past: PastEffect, calls: tuple[Call, ...]) -> bool:
        """The calls were never begun, and nothing has to be looked at or asked before they are made."""
        run_context = self.run_context
        if (
            past.is_recorded
            or self._policy.has_doubts
            or self._hooks.has("before_tool")
            or run_context.outside.asks
            or run_context.sources is not None
            or run_context.run_spec.past.lost is not None
        ):
            return False
        return all(each == "never" for each in run_context.run_spec.approve) and not any(
            map(self._policy.waits_always, calls)
        )

    async def _begin(self, group: Group, free: tuple[int, ...]) -> dict[int, Observation]:
        """Put on the record that the calls are made, and make those that nothing holds up."""
        intent: list[Entry] = []
        if not group.past.planned:
            for i, found in group.invented.items():
                self.run_context.remark(group.step, "invented", f"{group.calls[i].tool}: {describe_findings(found)}")
            intent.append((Acting(group.n, group.step, group.wrote, free), None))
        elif free:
            intent.append((Begun(group.n, free), None))
        if not intent or not all(self._policy.is_repeatable(group.calls[i]) for i in free):
            if intent:
                await self.run_context.log.append_before(self._not_repeatable(group, free), *intent)
            return await self._side_by_side(group, free)
        self.run_context.log.buffer(*intent)
        quick = all(self._policy.is_inline(group.calls[i]) for i in free)  # over before a timer could go off
        later = None if quick else asyncio.get_running_loop().call_later(LONG, self._write)
        try:
            return await self._side_by_side(group, free)
        finally:
            if later is not None:
                later.cancel()

    async def _with_leave(self, group: Group, i: int) -> Observation:
        """Make a call once the person has given leave."""
        call = group.calls[i]
        question = f"May '{call.tool}' be called with {input_of(call)}?"
        if i in group.invented and self.run_context.run_spec.grounding == "ask":
            question += f" This {describe_findings(group.invented[i])}."
        if i in group.questions:
            question += f" {group.questions[i]}"
        if self._policy.is_tainted(call, group.fixed):
            question += self.run_context.outside.describe()
        if self._policy.may_be_lost(call):
            question += " The journal may have lost rows of this run, so this call may have been made before."
        if self._policy.is_in_doubt(call):
            question += " The same call was made before, and whether it took effect is not known."
        said = group.past.answers.get(i)
        said = said or await self.run_context.wait(group.n, group.step, i, "approval", question, group.past, call)
        if said.approved:
            group = replace(group, calls=apply_edits(group.calls, {i: said}))
            await self.run_context.log.append_before(self._not_repeatable(group, (i,)), (Begun(group.n, (i,)), None))
            return (await self._side_by_side(group, (i,)))[i]
        text = f"The person refused this call: {said.text}" if said.text else "The person refused this call."
        return await self._ended(group, i, Observation(text, trouble="refused"))

    async def _side_by_side(self, group: Group, indexes: tuple[int, ...]) -> dict[int, Observation]:
        run_spec = self.run_context.run_spec
        waits: dict[int, ChildWaits] = {}

        async def one(i: int) -> Observation | None:
            call = group.calls[i]
            self.run_context.say(ev.Called(group.step, call))

            services = ToolServices(self.run_context, group.n, i, group.step, call, group.past, self._hooks)
            with offer_services(services), self.run_context.span.tool(group.step, call, run_spec.tools) as span:
                try:
                    made = await self._make_and_repeat(group.step, call, services)
                except ChildWaits as why:
                    waits[i] = why
                    return None
                except BaseException:  # the run is cancelled, or a limit stops it
                    if not self._policy.is_repeatable(call):
                        self.run_context.remark(
                            group.step, "in_doubt", f"{_in_doubt(call).text} Its input: {input_of(call)}"
                        )
                    raise
                span.record_result(made)
            spec = run_spec.context.tool(call.tool)
            if services.outside or (spec is not None and spec.open_world):
                made = structs.replace(made, outside=True)
            if i in group.invented and run_spec.grounding == "warn":
                made = structs.replace(made, note=warning(group.invented[i]))
            return await self._ended(group, i, made, is_made=True)

        if len(indexes) == 1 or all(self._policy.is_inline(group.calls[i]) for i in indexes):
            results = {i: await one(i) for i in indexes}
        else:
            async with asyncio.TaskGroup() as tasks:
                begun = {i: tasks.create_task(one(i)) for i in indexes}
            results = {i: task.result() for i, task in begun.items()}
        for i, why in waits.items():
            raise await self.run_context.wait_for_child(group.n, group.step, i, why, group.past)
        ended = {i: made for i, made in results.items() if made is not None}
        if not self._hooks.has("after_tool"):
            return ended
        decided = await self._hooks.after_tools(group.n, group.step, group.calls, ended, group.past)
        for i, seen in decided.items():
            self.run_context.say(ev.Observed(group.step, group.calls[i], seen))
        return decided

    async def _make_and_repeat(self, step: int, call: Call, services: ToolServices) -> Observation:
        """Make a call. If it fails and may be repeated, repeat it as long as a hook says so."""
        run_spec, attempt = self.run_context.run_spec, 0
        while True:
            made = await services.make_call(run_spec.tools, run_spec.limits.tool_seconds)
            attempt += 1
            if made.trouble not in ("raised", "timeout") or not self._policy.is_repeatable(call):
                return made
            if (wait := await self._hooks.on_tool_error(call, made, attempt)) is None:
                return made
            self.run_context.remark(step, "retry", f"{call.tool}: {made.text} Calling it again in {wait:.1f} s.")
            await asyncio.sleep(wait)

    async def _ended(self, group: Group, i: int, observation: Observation, *, is_made: bool = False) -> Observation:
        """Put a call's end on the record, with what the loop breaker has to say about it. `is_made`: hooks may change
        what the run shows of it."""
        call, wrote = group.calls[i], group.wrote[i]
        if observation.ok and self._policy.hands_off(call):
            observation = self._check_hand_off(call, observation)
        if call is not wrote:
            said = HOOK_CHANGED if call is group.changed[i] else CHANGED
            observation = structs.replace(observation, note=f"{said} {input_of(call)}.")
        self._policy.note_doubt(call, observation)
        note = self.run_context.breaker.remark(wrote, observation)
        if note:
            observation = structs.replace(observation, note=f"{observation.note} {note}".strip(), repeated=True)
        entry = (ObservedRecord(group.n, i, observation), self.run_context.artifacts.encode_new(observation.value))
        if self._policy.is_repeatable(call):
            self.run_context.log.buffer(entry)
        else:
            # The end of a call that must not be made twice is on disk before anything else happens.
            await self.run_context.log.append(entry)
        if not (is_made and self._hooks.has("after_tool")):
            self.run_context.say(ev.Observed(group.step, call, observation))
        return observation

    def _check_hand_off(self, call: Call, observation: Observation) -> Observation:
        """Return the observation, or an error for the model if its result can't be the answer of the run."""
        objection = find_objection(self.run_context, observation.value)
        if not objection:
            return observation
        text = f"Error: the result of '{call.tool}' cannot be the answer. {objection}\nThe result: {observation.text}"
        return Observation(text, trouble="raised", seconds=observation.seconds)

    def _invented(self, calls: tuple[Call, ...], todo: list[int]) -> Invented:
        """The made-up values of the calls that are to be made, where that is looked at."""
        sources, context = self.run_context.sources, self.run_context.run_spec.context
        if sources is None:
            return {}
        found = {
            i: sources.find_invented(calls[i], context.tool(calls[i].tool))
            for i in todo
            if calls[i].tool != context.search
        }
        return {i: each for i, each in found.items() if each}

    def _learn(self, calls: tuple[Call, ...], seen: tuple[Observation, ...]) -> None:
        """What was observed is a source from now on, but for made-up values that an error says once more.

        What only tells of tools is no source: a search of them, and what is said of a call that no tool could take.
        """
        if self.run_context.sources is None:
            return
        echoed = self._invented(calls, [i for i, observation in enumerate(seen) if not observation.ok])
        for i, observation in enumerate(seen):
            if calls[i].tool == self.run_context.run_spec.context.search or observation.trouble in (
                "unknown_tool",
                "bad_input",
            ):
                continue
            text = observation.text
            for value in echoed.get(i, ()):
                text = text.replace(value.rpartition(": ")[2], " ")
            self.run_context.sources.add(text)
            if observation.note.startswith((CHANGED, HOOK_CHANGED)):
                self.run_context.sources.add(observation.note)

    def _write(self) -> None:
        """Write what waits in line; where that fails the next append says so."""
        with suppress(JournalError):
            self._writing = asyncio.ensure_future(_quietly(self.run_context.log.append()))

    def _not_repeatable(self, group: Group, indexes: tuple[int, ...]) -> list[Call]:
        return [group.calls[i] for i in indexes if not self._policy.is_repeatable(group.calls[i])]

    async def _asked(self, group: Group, i: int) -> Observation:
        """What the person answers to a call that is a question."""
        tool = self.run_context.run_spec.tools.get(group.calls[i].tool)
        assert tool is not None
        if not self.run_context.run_spec.context.can_ask:
            return Observation("Nobody can be asked in this run. Go on without.", trouble="refused")
        try:
            args, kwargs = tool.bind(group.calls[i].input)
        except BadInput as why:
            return Observation(str(why), trouble="bad_input")
        question = str(next(iter((*args, *kwargs.values())), "")).strip()
        if not question:
            return Observation("Error: the question is empty.", trouble="bad_input")
        said = group.past.answers.get(i)
        said = said or await self.run_context.wait(
            group.n, group.step, i, "question", question, group.past, group.wrote[i]
        )
        return Observation(said.text, value=said.text)


async def _quietly(writing: Awaitable[None]) -> None:
    with suppress(JournalError):
        await writing


def _in_doubt(call: Call) -> Observation:
    return Observation(
        f"Error: the run was interrupted while '{call.tool}' was being called. Whether the call took effect is not "
        "known, and it was not repeated.",
        trouble="in_doubt",
    )
