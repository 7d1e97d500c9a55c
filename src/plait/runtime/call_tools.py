"""Performs act effects: the loop breaker, approval where it is needed, then the calls, side by side.

A call is on the record before it begins, unless its tool may be called again: then nothing can be lost, and its
beginning is written when the call takes longer than `LONG`, or with the next intent.

A call is in doubt when it began and nobody knows whether it took effect: its process died, the run was stopped or
cancelled meanwhile, or the call exceeded its time. It is made again only if its tool may be called again, or the policy
says so. An identical call (same tool, same input) needs approval for the rest of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass

from msgspec import convert, structs

from plait.core import JSON, Act, Answered, Call, Failed, Observation
from plait.core import events as ev
from plait.core.errors import BadInput, JournalError
from plait.core.tools import Trouble
from plait.journal import codec
from plait.journal.log import Entry
from plait.journal.records import Acting, Begun, ObservedRecord, Thrown
from plait.journal.timeline import ChangedBy
from plait.runtime.bound_calls import REBINDS, BoundCall
from plait.runtime.call_model import count_attempts
from plait.runtime.call_policy import CallPolicy
from plait.runtime.call_services import ToolServices
from plait.runtime.grounding import describe_findings, refuse_invented, warning
from plait.runtime.output_check import check_as_answer
from plait.runtime.recorded_effects import PastEffect
from plait.runtime.run_context import (
    ChildWaits,
    EndedByTool,
    RecordEnds,
    RunContext,
    differs,
    input_of,
    lines_of,
    sentence,
)
from plait.runtime.run_hooks import Decided, HookPlace, RunHooks
from plait.toolkits.read_result import NAME as READ_RESULT
from plait.tools.call_context import offer_services

CHANGED = {
    "user": "The person changed this call before it was made. Its input was",
    "hook": "A hook changed this call before it was made. Its input was",
}
"""The beginning of the note to the model about a changed call."""

DOUBT = " The same call was made before, and whether it took effect is not known."
"""The part of a question about a call that is in doubt."""

LONG = 0.05
"""Seconds: a call that takes longer is on the record while it goes on."""


@dataclass(frozen=True)
class CandidateCall:
    """A call on its way through the guards: as it is bound, who changed it, what hooks decided about it, which of its
    values the model made up, why it is refused, and how often the user has edited it."""

    bound: BoundCall
    changed_by: ChangedBy = ""
    decided: Decided[Call] | None = None
    invented: tuple[str, ...] = ()
    refusal: str = ""
    edits: int = 0


@dataclass(frozen=True)
class Group:
    """The calls of one effect as the model `wrote` them, as they were bound at first (`seen`; `alike` for the loop
    breaker), as they are to be made now, and what is recorded of the effect. `fixed`: as in `Act`."""

    n: int
    step: int
    wrote: tuple[Call, ...]
    seen: tuple[Call, ...]
    alike: tuple[Call, ...]
    candidates: dict[int, CandidateCall]
    past: PastEffect
    fixed: bool = False

    def call(self, i: int) -> Call:
        """Return a call as its tool gets it."""
        return self.candidates[i].bound.call

    def shown(self, i: int) -> Call:
        """Return a call in the model's own words, unless its input was changed."""
        return self.call(i) if self.candidates[i].changed_by else self.wrote[i]


class Actor:
    """Performs the act effects of one run."""

    def __init__(self, run_context: RunContext, hooks: RunHooks) -> None:
        self.run_context = run_context
        self._hooks = hooks
        self._writing: asyncio.Future[None] | None = None
        self._policy = CallPolicy(run_context)
        self._first: dict[bytes, Call] = {}
        """How calls were bound first, by their words: computed defaults make no call new."""

    async def perform(self, n: int, effect: Act, past: PastEffect) -> tuple[Observation, ...]:
        step = self.run_context.meter.steps
        calls = effect.calls
        if past.thrown is not None:
            raise self.run_context.meter.conclude(past.thrown.limit, past.thrown.detail)
        if past.planned and past.planned != calls:
            raise differs(n, step, lines_of(past.planned), lines_of(calls))
        self._count_questions(past)
        made = {each.i: each.call for each in past.calls}
        results = await self._hooks.after_tools(n, step, made, past.observed, past)
        if self.run_context.run_spec.replay and len(results) < len(calls):
            raise RecordEnds
        # A call that has begun is the user's last edit of it. Of others, the edits pass the guards one after the other.
        edits = {i: [each for each in past.answers(i) if each.input and i in past.begun] for i in range(len(calls))}
        bound = {
            i: self._bind(i, edits[i][-1].edit(call) if edits[i] else call, past, len(edits[i]))
            for i, call in enumerate(calls)
            if i not in results
        }
        seen = tuple(past.calls[i].bound if past.calls else bound[i].call for i in range(len(calls)))
        words = (codec.encode((call.tool, call.input)) for call in calls)
        alike = tuple(self._first.setdefault(each, call) for each, call in zip(words, seen, strict=True))
        if not past.planned and not past.waits:
            self.run_context.meter.before_act()
            for call in alike:
                if why := self.run_context.breaker.before(call):
                    near = self.run_context.meter.conclude("loop", why)
                    await self.run_context.log.append((Thrown(n, step, "LimitNear", near.limit, near.detail), None))
                    self.run_context.say(ev.Noted(step, "loop", sentence(why)))
                    raise near
        if bound:
            candidates = {
                i: CandidateCall(each, past.calls[i].changed_by if i in past.begun else "", edits=len(edits[i]))
                for i, each in bound.items()
            }
            group = Group(n, step, calls, seen, alike, candidates, past, effect.fixed)
            results.update(await self._make(group, list(bound)))
        ordered = tuple(results[i] for i in range(len(calls)))
        for call, observation in zip(alike, ordered, strict=True):
            self.run_context.breaker.after(call, observation)
        for i, observation in enumerate(ordered):
            if len(observation.text) > self.run_context.run_spec.context.observation_chars:
                self.run_context.results[f"{n}.{i}"] = observation
        self._learn(calls, ordered)
        self._follow_outside(step, calls, ordered)
        for observation in ordered:
            if observation.ends == "failure":
                raise EndedByTool(Failed(observation.text, kind="tool"))
            if observation.ends:
                answer = self.run_context.run_spec.output.read(observation.value)
                stopped = observation.stopped
                raise EndedByTool(Answered(answer) if stopped is None else structs.replace(stopped, answer=answer))
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

    def _bind(self, i: int, given: Call, past: PastEffect, edits: int = 0, recorded: Call | None = None) -> BoundCall:
        """Bind a call, or the user's edit of it, `recorded` with its answer. What guards saw on record wins."""
        decided, asked = past.decided.get(("before_tool", i), ())[edits:], past.waits.get(i, ())[edits:]
        words: dict[str, JSON] = {}
        if decided and decided[0].value is not None:
            recorded, words = convert(decided[0].value, Call), decided[0].value.get("words", {})
        elif asked and asked[0].call is not None:
            recorded = asked[0].call
        if recorded is None:
            return self.run_context.binder.bind(given)
        try:
            return self.run_context.binder.restore(given, recorded, words)
        except BadInput as why:
            return BoundCall(given, error=str(why))

    async def _admit(self, group: Group, i: int) -> CandidateCall:
        """Take a call to its hooks, and look for made-up values in it."""
        bound, edits = group.candidates[i].bound, group.candidates[i].edits
        if bound.error:
            return group.candidates[i]
        place = HookPlace("before_tool", group.n, i, group.step, group.past, edits)
        bound, decided = await self._hooks.before_tool(place, bound)
        sources, context = self.run_context.sources, self.run_context.run_spec.context
        invented: tuple[str, ...] = ()
        if sources is not None and bound.call.tool != context.search:
            invented = sources.find_invented(bound.written, context.tool(bound.call.tool))
        refusal = f"The call is refused: {decided.refusal}" if decided.refusal else ""
        if invented and not refusal and self.run_context.run_spec.grounding == "refuse":
            others = (tool.name for tool in self.run_context.run_spec.tools if tool.name != bound.call.tool)
            refusal = refuse_invented(invented, others)
        changed_by: ChangedBy = "hook" if decided.changed else "user" if edits else ""
        return CandidateCall(bound, changed_by, decided, invented, refusal, edits)

    def _find_questions(self, candidate: CandidateCall, fixed: bool) -> dict[str, str]:
        """Return the guards that want the user's approval of a call, each with its part of the question."""
        call, found = candidate.bound.call, dict[str, str]()
        if candidate.invented and self.run_context.run_spec.grounding == "ask":
            found["grounding"] = f" This {describe_findings(candidate.invented)}."
        if candidate.decided is not None and candidate.decided.question:
            found |= dict.fromkeys((f"hook {name}" for name in candidate.decided.hooks), "")
            found[f"hook {candidate.decided.hooks[0]}"] = f" {candidate.decided.question}"
        if self._policy.is_tainted(call, fixed and not candidate.changed_by):
            found["taint"] = self.run_context.outside.describe()
        if self._policy.may_be_lost(call):
            found["lost"] = " The journal may have lost rows of this run, so this call may have been made before."
        if self._policy.is_in_doubt(candidate.bound):
            found["doubt"] = DOUBT
        return found | dict.fromkeys(self._policy.find_approvals(call), "")

    async def _make(self, group: Group, todo: list[int]) -> dict[int, Observation]:
        """Make the calls that have no result yet: those in doubt by policy, those that need approval after it came."""
        calls, candidates, begun = group.wrote, group.candidates, group.past.begun
        if self._needs_nobody(group):
            return await self._begin(group, tuple(todo))
        results: dict[int, Observation] = {}
        doubtful = [i for i in todo if i in begun and not self._policy.may_repeat(calls[i])]
        todo = [i for i in todo if i not in doubtful]
        for i in todo:
            candidates[i] = await self._admit(group, i)
        for i in doubtful:
            results[i] = await self._ended(group, i, _in_doubt(calls[i]))
        unbound = [i for i in todo if candidates[i].bound.error]  # no guard sees them, and no tool
        refused = [i for i in todo if candidates[i].refusal]
        rest = [i for i in todo if i not in (*unbound, *refused)]
        questions = [i for i in rest if self._policy.is_question(calls[i])]
        lost = [i for i in rest if i not in questions and self._policy.is_lost(group.call(i))]
        asking = {
            i: self._find_questions(candidates[i], group.fixed)
            for i in rest
            if i not in (*questions, *lost) and i not in begun
        }
        # What the person was asked needs their answer, whatever the policy says by now.
        need = [i for i, asks in asking.items() if asks or i in group.past.waits]
        free = tuple(i for i in todo if i not in (*refused, *questions, *lost, *need))
        results.update(await self._begin(group, free))
        for i in lost:
            results[i] = await self._ended(group, i, _in_doubt(calls[i]))
        for i in refused:
            results[i] = await self._ended(group, i, Observation(candidates[i].refusal, trouble="refused"))
        for i in questions:
            results[i] = await self._ended(group, i, await self._asked(group, i))
        for i in need:
            results[i] = await self._make_if_approved(group, i, asking[i])
        return results

    def _needs_nobody(self, group: Group) -> bool:
        """The calls were never begun, and nothing has to be looked at or asked before they are made."""
        run_context = self.run_context
        if (
            group.past.is_recorded
            or self._hooks.has("before_tool")
            or run_context.outside.asks
            or run_context.sources is not None
            or run_context.run_spec.past.lost is not None
        ):
            return False
        return all(each == "never" for each in run_context.run_spec.approve) and not any(
            self._policy.waits_always(each.bound.call) or self._policy.is_in_doubt(each.bound)
            for each in group.candidates.values()
        )

    async def _begin(self, group: Group, free: tuple[int, ...]) -> dict[int, Observation]:
        """Record that the calls start. Make those that need no approval at once, and ask for the others."""
        intent: list[Entry] = []
        if not group.past.planned:
            for each in group.candidates.values():
                if each.invented:
                    found = describe_findings(each.invented)
                    self.run_context.remark(group.step, "invented", f"{each.bound.call.tool}: {found}")
            pairs = enumerate(zip(group.wrote, group.seen, strict=True))
            bound = {i: seen.input for i, (wrote, seen) in pairs if codec.encode(seen) != codec.encode(wrote)}
            intent.append((Acting(group.n, group.step, group.wrote, free, bound), None))
        elif free:
            intent.append((Begun(group.n, free), None))
        if not intent or not all(self._policy.is_repeatable(group.wrote[i]) for i in free):
            if intent:
                await self.run_context.log.append_before(self._not_repeatable(group, free), *intent)
            return await self._side_by_side(group, free)
        self.run_context.log.buffer(*intent)
        quick = all(self._policy.is_inline(group.wrote[i]) for i in free)  # over before a timer could go off
        later = None if quick else asyncio.get_running_loop().call_later(LONG, self._write)
        try:
            return await self._side_by_side(group, free)
        finally:
            if later is not None:
                later.cancel()

    async def _make_if_approved(self, group: Group, i: int, asking: dict[str, str]) -> Observation:
        """Make a call after the user has approved it. `asking` are the guards that want that.

        They have approved what the user edits. All others look at it anew.
        """
        answered = [each for each in group.past.waits.get(i, ()) if each.answer is not None]
        approved: set[str] = set()
        question = ""
        while True:
            call, edits = group.call(i), group.candidates[i].edits
            said = None
            if self._policy.is_in_doubt(group.candidates[i].bound):
                asking |= {"doubt": DOUBT}  # the calls before this one may have caused it
            if not edits or asking.keys() - approved:
                question = f"May '{call.tool}' be called with {input_of(call)}?{''.join(asking.values())}"
                where = (group.n, group.step, i)
                if answered:
                    question, said = answered[0].text, answered.pop(0).answer
                said = said or await self.run_context.wait(*where, "approval", question, group.past, call)
                if not said.approved:
                    why = f": {said.text}" if said.text else "."
                    refusal = Observation(f"The person refused this call{why}", trouble="refused")
                    return await self._ended(group, i, refusal)
            if said is None or not said.input:
                if not question.endswith(DOUBT) and self._policy.is_in_doubt(group.candidates[i].bound):
                    continue  # it was not in doubt when the user was asked; the input may hold the words, too
                begun = Begun(group.n, (i,))
                await self.run_context.log.append_before(self._not_repeatable(group, (i,)), (begun, None))
                return (await self._side_by_side(group, (i,)))[i]
            if edits == REBINDS:
                refusal = Observation("The call was edited too often. It was not made.", trouble="refused")
                return await self._ended(group, i, refusal)
            seen = said.edit(call)
            bound = self._bind(i, structs.replace(seen, input=said.input[-1]), group.past, edits + 1, seen)
            group.candidates[i] = CandidateCall(bound, "user", edits=edits + 1)
            group.candidates[i] = candidate = await self._admit(group, i)
            if failed := bound.error or candidate.refusal:
                trouble: Trouble = "bad_input" if bound.error else "refused"
                return await self._ended(group, i, Observation(failed, trouble=trouble))
            approved = set() if candidate.changed_by == "hook" else set(asking)
            asking = self._find_questions(candidate, group.fixed)

    async def _side_by_side(self, group: Group, indexes: tuple[int, ...]) -> dict[int, Observation]:
        run_spec = self.run_context.run_spec
        waits: dict[int, ChildWaits] = {}
        approved = {i for i in indexes if self._policy.is_in_doubt(group.candidates[i].bound)}

        async def one(i: int) -> Observation | None:
            bound, call = group.candidates[i].bound, group.shown(i)
            self.run_context.say(ev.Called(group.step, call))

            def refuse_new_doubt() -> str:
                if i in approved or not self._policy.is_in_doubt(bound):
                    return ""
                return f"'{call.tool}' was not called.{DOUBT}"

            services = ToolServices(self.run_context, group.n, i, group.step, call, group.past, self._hooks)
            services.find_refusal = refuse_new_doubt
            meter, traced = self.run_context.meter, self.run_context.span.tool(group.step, call, run_spec.tools)
            with offer_services(services), meter.counted(working=1), traced as span:
                try:
                    made = await self._make_and_repeat(group, i, services)
                except ChildWaits as why:
                    waits[i] = why
                    return None
                except BaseException:  # the run is cancelled, or a limit stops it
                    if not self._policy.is_repeatable(call):
                        self._policy.note_doubt(bound)
                        said = f"{_in_doubt(call).text} Its input: {input_of(bound.call)}"
                        self.run_context.remark(group.step, "in_doubt", said)
                    raise
                span.record_result(made)
            spec = run_spec.context.tool(call.tool)
            if services.outside or (spec is not None and spec.open_world):
                made = structs.replace(made, outside=True)
            if (invented := group.candidates[i].invented) and run_spec.grounding == "warn":
                made = structs.replace(made, note=warning(invented))
            return await self._ended(group, i, made, is_made=True)

        if len(indexes) == 1 or all(self._policy.is_inline(group.wrote[i]) for i in indexes):
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
        calls = {i: group.call(i) for i in ended}
        decided = await self._hooks.after_tools(group.n, group.step, calls, ended, group.past)
        for i, seen in decided.items():
            self.run_context.say(ev.Observed(group.step, group.shown(i), seen))
        return decided

    async def _make_and_repeat(self, group: Group, i: int, services: ToolServices) -> Observation:
        """Make a call. If it fails and may be repeated, repeat it as long as a hook says so."""
        run_spec, attempt = self.run_context.run_spec, 0
        bound = group.candidates[i].bound
        step, call = group.step, bound.call
        while True:
            made = await services.make_call(run_spec.tools, run_spec.limits.tool_seconds, bound)
            attempt += 1
            if made.trouble not in ("raised", "timeout") or made.ends or not self._policy.is_repeatable(call):
                return made
            if (wait := await self._hooks.on_tool_error(call, made, attempt)) is None:
                return made
            self.run_context.remark(step, "retry", f"{call.tool}: {made.text} Calling it again in {wait:.1f} s.")
            await asyncio.sleep(wait)
            try:
                # The tool may have changed the values.
                bound = self.run_context.binder.restore(group.wrote[i], call, bound.words)
            except BadInput as why:
                return Observation(str(why), trouble="bad_input")

    async def _ended(self, group: Group, i: int, observation: Observation, *, is_made: bool = False) -> Observation:
        """Put a call's end on the record, with what the loop breaker has to say about it. `is_made`: hooks may change
        what the run shows of it."""
        call, changed_by = group.call(i), group.candidates[i].changed_by
        if observation.ok and (observation.ends or self._policy.hands_off(call)):
            observation = check_as_answer(self.run_context, call, observation)
        if changed_by:
            observation = structs.replace(observation, note=f"{CHANGED[changed_by]} {input_of(call)}.")
        if observation.trouble == "in_doubt":
            self._policy.note_doubt(group.candidates[i].bound)
        context = self.run_context.run_spec.context
        if len(observation.text) > context.observation_chars and not call.by_code and context.tool(READ_RESULT):
            said = f"The result has {len(observation.text):,} characters: too many to show. To read or search it, call"
            said += f'\n`{READ_RESULT}` with result="{group.n}.{i}", and start=NUMBER or find="TEXT"'
            observation = structs.replace(observation, note=f"{observation.note} {said}".strip())
        note = self.run_context.breaker.remark(group.alike[i], observation)
        if note:
            observation = structs.replace(observation, note=f"{observation.note} {note}".strip(), repeated=True)
        entry = (ObservedRecord(group.n, i, observation), self.run_context.artifacts.encode_new(observation.value))
        if self._policy.is_repeatable(call):
            self.run_context.log.buffer(entry)
        else:
            # The end of a call that must not be made twice is on disk before anything else happens.
            await self.run_context.log.append(entry)
        if not (is_made and self._hooks.has("after_tool")):
            self.run_context.say(ev.Observed(group.step, group.shown(i), observation))
        return observation

    def _learn(self, calls: tuple[Call, ...], seen: tuple[Observation, ...]) -> None:
        """Add the observations to the sources, without made-up values that an error repeats.

        Results about tools are no sources: a search for tools, and the error for a call that fits no tool.
        """
        sources, context = self.run_context.sources, self.run_context.run_spec.context
        if sources is None:
            return
        for call, observation in zip(calls, seen, strict=True):
            if call.tool == context.search or observation.trouble in ("unknown_tool", "bad_input"):
                continue
            text = observation.text
            for value in () if observation.ok else sources.find_invented(call, context.tool(call.tool)):
                text = text.replace(value.rpartition(": ")[2], " ")
            sources.add(text)
            if observation.note.startswith(tuple(CHANGED.values())):
                sources.add(observation.note)

    def _write(self) -> None:
        """Write what waits in line; where that fails the next append says so."""
        with suppress(JournalError):
            self._writing = asyncio.ensure_future(_quietly(self.run_context.log.append()))

    def _not_repeatable(self, group: Group, indexes: tuple[int, ...]) -> list[Call]:
        return [group.call(i) for i in indexes if not self._policy.is_repeatable(group.call(i))]

    async def _asked(self, group: Group, i: int) -> Observation:
        """What the person answers to a call that is a question."""
        if not self.run_context.run_spec.context.can_ask:
            return Observation("Nobody can be asked in this run. Go on without.", trouble="refused")
        question = str(next(iter(group.call(i).input.values()), "")).strip()
        if not question:
            return Observation("Error: the question is empty.", trouble="bad_input")
        said = next(iter(group.past.answers(i)), None) or await self.run_context.wait(
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
