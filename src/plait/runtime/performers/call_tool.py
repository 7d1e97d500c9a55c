"""Performs one tool call of an act: binds it, makes it, and words its result.

A call is in doubt when it began and nobody knows whether it took effect: its process died, the run was stopped or
cancelled meanwhile, or the call exceeded its time. It is made again only if its tool may be called again, if the tool's
`verify` says that it had no effect (`calls/verify_call.py`), or if the policy `on_interrupted_call` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, convert, structs

from plait.core import Call, Observation
from plait.core import events as ev
from plait.core.errors import BadInput
from plait.core.text import shorten
from plait.journal import codec
from plait.journal.entries import withhold_result
from plait.journal.keys import read_key
from plait.journal.owner import owner_of_this_process
from plait.journal.records import Asking, CallHolder, Decision, IntentRecord, MadeCall
from plait.runtime.calls.artifacts import find_artifacts
from plait.runtime.calls.bound_calls import BoundCall, input_of, replace_input
from plait.runtime.calls.call_services import ToolServices
from plait.runtime.calls.make_call import UNKNOWN
from plait.runtime.calls.verify_call import verify_call
from plait.runtime.calls_in_doubt import describe_doubt
from plait.runtime.decisions import digested
from plait.runtime.guard import Entry, Suspend, make_open_question
from plait.runtime.performers.base import SHOWN, BasePerformer
from plait.runtime.run_journal import EntryWork, FoundEntry
from plait.runtime.run_spec import differs
from plait.runtime.spent import Spent
from plait.toolkits.read_result import NAME as READ_RESULT
from plait.tools import Tool
from plait.tools.call_context import REFUSALS, held_calls, offer_services
from plait.tools.threads import run_in_thread

if TYPE_CHECKING:
    from plait.runtime.engine import Engine

CHANGED = {
    "user": "The person changed this call before it was made. Its input was",
    "hook": "A hook changed this call before it was made. Its input was",
}
"""The beginning of the note to the model about a changed call."""


class CallTool(BasePerformer):
    """Performs one tool call of an act."""

    work = "call"
    subject = ("call", "result")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._unknown: dict[str, str] = {}
        """What the model reads about tools that do not exist, if it takes long to find that out."""
        self._begun: set[str] = set()
        """The keys of calls that began in an earlier process, which the tally knows."""
        self._continued: set[str] = set()
        """The keys of calls that began before, or about which the record has decisions."""
        self._closed: dict[str, int] = {}
        """How many idempotency keys of a call that is made again were closed."""
        self._unreported: set[str] = set()
        """The keys of calls whose results are not reported yet."""

    # -- the call, before it is made

    def bind(self, entry: Entry) -> None:
        entry.bound = bound = self.engine.binder.bind(entry.asked)
        entry.effect = bound.call
        if bound.error:
            raise BadInput(bound.error)
        if f"{entry.key}?" in self.engine.journal.decided:
            self._continued.add(entry.key)
            entry.bound = bound = self._bind_as_decided(entry, bound)
            entry.effect = bound.call

    def _bind_as_decided(self, entry: Entry, bound: BoundCall) -> BoundCall:
        """Return the call as it was bound when the first decision about it was made: computed defaults, and those of a
        changed program, differ from process to process. Raises `BadInput` if the tool would get another input than the
        user was asked about.
        """
        journal = self.engine.journal
        decisions = [(key, found) for key, found in journal.items() if key.startswith(f"{entry.key}?")]
        first = decisions[0][0].rpartition("@")[2]

        def is_first(given: Call) -> bool:
            return journal.digest(digested(given)) == first

        if is_first(bound.call):
            return bound
        for _, found in decisions:
            seen = found.asked.call.input if isinstance(found.asked, Asking) and found.asked.call else None
            if seen is None and isinstance(found.value, Decision) and found.value.action == "change":
                seen = found.value.value.get("input")
            if not isinstance(seen, dict):
                continue
            defaults = {name: seen[name] for name in bound.filled if name in seen}
            for given in (seen, bound.call.input | defaults):
                if is_first(call := structs.replace(bound.call, input=given)):
                    return structs.replace(self.engine.binder.restore(entry.asked, call), filled=bound.filled)
        return bound  # the guards decide about it anew

    def rebind(self, entry: Entry, changed: Any, decision: Decision) -> None:
        binder, before = self.engine.binder, entry.bound
        assert before is not None
        if decision.action == "edit":
            given = structs.replace(changed, by_code=False)
            if decision.bound is None:  # the edit of a child run's call, which is bound here first
                bound = binder.bind(given)
                if bound.error:
                    raise BadInput(bound.error)
            else:
                bound = binder.restore(given, structs.replace(given, input=decision.bound))
            entry.changed_by = "user"
        else:  # secrets are replaced in what is on record: what a guard left is the value before
            is_same = binder.is_recorded if entry.key in self._continued else None
            bound = binder.bind_changed(changed, before, is_same)
            if bound.call != before.call:
                entry.changed_by = "hook"
        entry.bound, entry.effect = bound, bound.call

    def restore(self, entry: Entry, found: FoundEntry) -> None:
        asked = read_call(found.asked)
        if asked != entry.asked and not self.engine.journal.is_same(entry.asked, asked):
            raise differs(entry.key, entry.step, line_of(asked), line_of(entry.asked))
        made = MadeCall(asked) if found.made is UNSET else found.made
        entry.asked, entry.tool = entry.asked or asked, entry.tool or self.engine.run_spec.tools.get(asked.tool)
        entry.changed_by, entry.bound, entry.effect = made.by, BoundCall(made.call), made.call
        if found.value is not UNSET and found.made is UNSET and found.value.trouble == "refused":
            # Its row has the loop's words alone; the guards saw it bound.
            bound = self.engine.binder.bind(entry.asked)
            if not bound.error:
                entry.bound, entry.effect = bound, bound.call
        self._continued.add(entry.key)
        self._begun.add(entry.key)
        tool = entry.tool
        is_in_doubt = found.is_open and (tool is None or not self._may_repeat(tool))
        if is_in_doubt:  # a call that waits for the user's answer is none
            is_in_doubt = not any(key.startswith(f"{entry.key}:q") for key, _ in self.engine.journal.items())
        can_verify = tool is not None and tool.verify is not None
        if found.value is UNSET and (can_verify or not is_in_doubt) and not self.engine.journal.replay:
            with suppress(BadInput) if is_in_doubt else nullcontext():
                entry.bound = bound = self.engine.binder.restore(entry.asked, made.call, made.words)
                entry.effect = bound.call

    async def describe_unknown(self, calls: Sequence[Call]) -> None:
        """Find out what to say about calls of unknown tools, in a thread: tools are searched for it."""
        tools = self.engine.run_spec.tools
        for name in {call.tool for call in calls} - self._unknown.keys():
            if tools.get(name) is None:
                self._unknown[name] = await run_in_thread(partial(tools.describe_unknown, name))

    def describe_unbound(self, entry: Entry, why: BadInput) -> Observation:
        if entry.tool is not None:
            return Observation(why.message, trouble="bad_input", outside=entry.tool.open_world)
        name = entry.asked.tool
        said = self._unknown.get(name) or self.engine.run_spec.tools.describe_unknown(name)
        return Observation(said, trouble="unknown_tool")

    def refuse(self, entry: Entry, reason: str, *, is_after: bool, by_user: bool) -> Observation:
        if not is_after:
            if by_user:
                reason = f"The person refused this call{f': {reason}' if reason else '.'}"
            return self._add_notes(entry, Observation(reason, trouble="refused"))
        made: Observation = self.engine.journal.find(entry.key).value
        self.engine.artifacts.withheld |= find_artifacts(made.value).keys()
        return withhold_result(entry.effect.tool, made, reason, by_user=by_user)

    def ask(self, entry: Entry, question: str, result: Any) -> Asking:
        call: Call = entry.effect
        if result is UNSET:
            return Asking("approval", question, replace_input(call))
        shown = shorten(result.text, SHOWN)[0]
        return Asking("approval", f"{question}\nThe result of {call.tool} {input_of(call, entry.bound)}: {shown}")

    def report_refused(self, entry: Entry, result: Observation) -> None:
        if result.trouble != "refused":  # the model called it, and gets an error as from a tool
            self.engine.say(ev.Called(entry.step, entry.asked))
            with self.engine.span.tool(entry.step, entry.asked, self.engine.run_spec.tools) as span:
                span.record_result(result)
        self._unreported.add(entry.key)

    # -- the call

    def describe(self, entry: Entry) -> EntryWork:
        asked, call, tool, bound = entry.asked, entry.effect, entry.tool, entry.bound
        words = bound.words if bound is not None else {}
        # Equal in Python may differ in JSON, as 1 and 1.0 do.
        is_same = not (entry.changed_by or words) and asked == call and codec.encode(asked) == codec.encode(call)
        return EntryWork(
            asked,
            UNSET if is_same else MadeCall(call, entry.changed_by, words),
            None,
            # A call that began had a tool, though this agent may lack it.
            None if tool is not None and is_repeatable(tool) else partial(self._settle_doubt, entry),
            None if is_repeatable(tool) else call,
            not is_inline(tool),
            name_holder=partial(self._name_holder, entry),
        )

    async def perform(self, entry: Entry) -> tuple[Observation, bytes | None]:
        """Make the call. Raises `Suspend` if a child run of it waits for the user, or if the user answers the call."""
        engine, tool, bound = self.engine, entry.tool, entry.bound
        assert tool is not None and bound is not None
        if entry.key not in self._begun:
            engine.tally.own += Spent(tool_calls=1)
        if tool.person:
            made = await self._ask_user(entry)
            self._unreported.add(entry.key)
            return self._add_notes(entry, made), None
        shown = _show(entry)
        engine.say(ev.Called(entry.step, shown))
        services = ToolServices(engine, entry)
        services.find_refusal = partial(engine.chain.refuse_late, entry)
        waits: Suspend | None = None
        traced = engine.span.tool(entry.step, shown, engine.run_spec.tools)
        inbox = engine.performers.news.inbox
        watch = inbox.begin_call(entry.key, services.cancel) if inbox is not None and not tool.runs_inline else None
        with offer_services(services), engine.clock.counted(working=1), traced as span:
            try:
                made = await services.call_tool(tool, engine.run_spec.agent.limits.tool_seconds, bound)
                if made.trouble in ("raised", "timeout") and not made.ends and is_repeatable(tool):
                    made = await self._repeat(entry, made, services)
                if made.trouble == "in_doubt":
                    made = await self._verify(entry, made)
                if made.trouble == "in_doubt":  # the calls beside it must know of it at once, before it is recorded
                    engine.chain.recall(entry, made)
                span.record_result(made)
            except Suspend as why:
                waits = why
            finally:
                if inbox is not None and watch is not None:
                    inbox.end_call(entry.key, watch)
        if waits is not None:
            raise waits
        if services.outside or tool.open_world:
            made = structs.replace(made, outside=True)
        self._unreported.add(entry.key)
        made = self._add_notes(entry, made)
        return made, engine.artifacts.encode_new(made.value)

    async def _repeat(self, entry: Entry, made: Observation, services: ToolServices) -> Observation:
        """Repeat a failed call as long as a guard says so."""
        engine, attempt = self.engine, 1
        tool, bound, call = entry.tool, entry.bound, entry.effect
        assert tool is not None and bound is not None
        while made.trouble in ("raised", "timeout") and not made.ends:
            if (wait := await engine.chain.retry_after(entry, made, attempt)) is None:
                return made
            said = f"{call.tool}: {made.text} Calling it again in {wait:.1f} s."
            engine.remark("retry", said, entry.step)
            await asyncio.sleep(wait)
            try:
                # The tool may have changed the values.
                bound = engine.binder.restore(entry.asked, call, bound.words)
            except BadInput as why:
                return Observation(str(why), trouble="bad_input")
            made = await services.call_tool(tool, engine.run_spec.agent.limits.tool_seconds, bound)
            attempt += 1
        return made

    async def _ask_user(self, entry: Entry) -> Observation:
        """Return the user's answer to a call that is a question. Raises `Suspend` until there is one."""
        engine, journal = self.engine, self.engine.journal
        if not engine.run_spec.context.can_ask:
            return Observation("Nobody can be asked in this run. Go on without.", trouble="refused")
        question = str(next(iter(entry.effect.input.values()), "")).strip()
        if not question:
            return Observation("Error: the question is empty.", trouble="bad_input")
        key = f"{entry.key}:q{journal.digest(question)}.0"
        found, asking = journal.find(key), Asking("question", question)
        if found.value is not UNSET:
            return Observation(found.value, value=found.value)
        if not found.is_open:
            await journal.write(IntentRecord(key, entry.step, "question", asking))
        raise Suspend(make_open_question(entry.run, key, entry.step, asking))

    def _may_repeat(self, tool: Tool | None) -> bool:
        return is_repeatable(tool) or self.engine.run_spec.agent.on_interrupted_call == "repeat"

    # -- its result

    async def _settle_doubt(self, entry: Entry) -> tuple[Observation, bytes | None] | None:
        """Return the result of a call that began in an earlier process, or was given up; None to make it again, or to
        go on with it after the user has answered a question of its tool. Raises `Suspend` until then."""
        if (answer := self._find_answer(entry)) is not None:
            if (entry.run, entry.key) in held_calls or answer.strip().lower() not in REFUSALS:
                return None
            said = "The user declined a question of the tool. The call was not completed."
            self._unreported.add(entry.key)
            return self._add_notes(entry, Observation(said, trouble="refused")), None
        verdict, tool = await verify_call(self.engine, entry), entry.tool
        made = verdict.result
        if made is None and (verdict.is_over or (tool is not None and self._may_repeat(tool))):
            holder = self.engine.journal.find(entry.key).holder
            self._closed[entry.key] = verdict.closed + (holder.closed if holder is not None else 0)
            return None
        made = made or Observation(f"{describe_doubt(entry.asked)} {verdict.text}".strip(), trouble="in_doubt")
        self._unreported.add(entry.key)
        return self._add_notes(entry, made), self.engine.artifacts.encode_new(made.value)

    def _find_answer(self, entry: Entry) -> str | None:
        """Return the user's last answer to a question of the tool, if the tool may go on with it: the call goes on in
        this process, the question has a state, or no answer was used yet, so that the call can be made from the start.
        None if it is in doubt. Raises `Suspend` if a question is open."""
        rows = [(key, found) for key, found in self.engine.journal.items() if key.startswith(f"{entry.key}:")]
        asked = [(key, found) for key, found in rows if read_key(key).asked.startswith("q")]
        used = {key for key, _ in rows if read_key(key).asked.startswith("u")}
        if asked and asked[-1][1].asked.state is not None:
            used &= {asked[-1][0].replace(":q", ":u")}
        if not asked or (used and (entry.run, entry.key) not in held_calls):
            return None
        if waits := [make_open_question(entry.run, key, entry.step, each.asked) for key, each in asked if each.is_open]:
            raise Suspend(*waits)
        return str(asked[-1][1].value)

    async def _verify(self, entry: Entry, made: Observation) -> Observation:
        """Return what became of a call that is in doubt while its run goes on."""
        verdict = await verify_call(self.engine, entry)
        if verdict.is_over:
            return structs.replace(made, text=f"{made.text.removesuffix(UNKNOWN)}{verdict.text}", trouble="timeout")
        return structs.replace(verdict.result, seconds=made.seconds) if verdict.result is not None else made

    def _name_holder(self, entry: Entry) -> CallHolder | None:
        if entry.tool is None or entry.tool.verify is None:
            return None
        return CallHolder(self.engine.run_id, owner_of_this_process(), self._closed.get(entry.key, 0))

    def _add_notes(self, entry: Entry, made: Observation) -> Observation:
        """Return a result as it is recorded: with the runtime's remarks, and the mark of one that ends the run."""
        call, context = entry.effect, self.engine.run_spec.context
        if made.ok and entry.tool is not None and entry.tool.hand_off:
            made = structs.replace(made, ends="answer")
        if entry.changed_by:
            made = structs.replace(made, note=f"{CHANGED[entry.changed_by]} {input_of(call)}.")
        if len(made.text) > context.observation_chars and not call.by_code and context.tool(READ_RESULT):
            said = f"The result has {len(made.text):,} characters: too many to show. To read or search it, call"
            said += f'\n`{READ_RESULT}` with result="{entry.key}", and start=NUMBER or find="TEXT"'
            made = structs.replace(made, note=f"{made.note} {said}".strip())
        return made

    def report(self, entry: Entry, result: Observation) -> None:
        """Report the result of a call that was made in this process, once."""
        if entry.key in self._unreported:
            self._unreported.remove(entry.key)
            # The record has no input of a call that a hook changed and another guard refused.
            shown = _show(entry) if entry.begun or entry.changed_by == "user" else entry.asked
            self.engine.say(ev.Observed(entry.step, shown, result))


def read_call(value: Any) -> Call:
    """Return a recorded call."""
    return value if isinstance(value, Call) else convert(value, Call)


def line_of(call: Call) -> str:
    """Return a call as one line, to compare it with another."""
    return f"{call.tool} {input_of(call)}"


def _show(entry: Entry) -> Call:
    """Return a call in the model's own words, unless its input was changed."""
    call: Call = entry.effect if entry.changed_by else entry.asked
    return call


def is_inline(tool: Tool | None) -> bool:
    """Return whether calls of a tool are made on the event loop itself."""
    return tool is None or tool.runs_inline


def is_repeatable(tool: Tool | None) -> bool:
    """Return whether a call can be repeated if it is not known whether the first one happened."""
    return tool is None or tool.read_only or tool.idempotent or tool.person
