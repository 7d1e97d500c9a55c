"""Performs acts: tool calls, side by side.

Theory of operation. An `Act` has no row of its own. All its calls are admitted first, one after the other, those on
record before the others. Then they are carried out side by side, and when all have ended their results are settled in
the order of the calls. A call that waits for the user, or for a child run that does, lets the others come to their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from plait.core import Act, Answered, Failed, LimitNear, Observation, Stopped
from plait.core.text import sentence
from plait.runtime.chain import Admitted
from plait.runtime.guard import Entry, LimitReached, Suspend
from plait.runtime.performers.background_calls import STARTED, BackgroundCalls
from plait.runtime.performers.base import BasePerformer
from plait.runtime.performers.call_tool import CallTool, is_inline, is_repeatable, line_of, read_call
from plait.runtime.run_journal import NOTHING
from plait.runtime.run_spec import differs

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


class EndedByTool(Exception):
    """Raised when a call ends the run."""

    def __init__(self, outcome: Answered | Failed | Stopped) -> None:
        super().__init__("a tool ended the run")
        self.outcome = outcome


class CallTools(BasePerformer):
    """Performs `Act`: a composite, which has no row. Each call is an entry."""

    work = "call"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.results: dict[str, Observation] = {}
        """The results that are too long to be shown, by the key of the call, such as "3.0"."""
        self._tool = CallTool(engine)
        self.background = BackgroundCalls(engine)

    async def take(self, key: str, effect: Act, *, started: bool, beside: int) -> tuple[Observation, ...]:
        """Make the calls, or return their recorded results. Raises `EndedByTool` if one of them ends the run."""
        engine, calls = self.engine, effect.calls
        journal = self.engine.journal
        if (count := journal.calls[int(key)]) > len(effect.calls):
            asked = [journal.find(f"{key}.{i}").asked for i in range(count)]
            expected = "\n".join("(another call)" if each is UNSET else line_of(read_call(each)) for each in asked)
            raise differs(key, self.engine.steps, expected, "\n".join(map(line_of, effect.calls)))
        tools = engine.run_spec.tools
        if tools.near is not None:
            await self._tool.describe_unknown(calls)
        make = partial(Entry, fixed=effect.fixed, started=started, beside=beside)
        entries = [
            make(engine.run_id, f"{key}.{i}", engine.steps, call, call, tools.get(call.tool))
            for i, call in enumerate(calls)
        ]
        if len(entries) == 1 and not self.background.takes(entries[0]):
            seen: tuple[Observation, ...] = (await engine.perform(entries[0], self._tool),)
        else:
            seen = await self._take_all(entries)
        ending = None
        for entry, observation in zip(entries, seen, strict=True):
            if entry.key not in self.background.begun:
                self.report(entry, observation)
            if observation.ends and ending is None:
                ending = observation
        if ending is None:
            return seen
        if ending.ends == "failure":
            raise EndedByTool(Failed(ending.text, kind="tool"))
        answer = engine.run_spec.output.read(ending.value)
        raise EndedByTool(
            Answered(answer) if ending.stopped is None else structs.replace(ending.stopped, answer=answer)
        )

    def report(self, entry: Entry, result: Observation) -> None:
        """Report the result of a call, and keep it if it is too long to be shown."""
        self._tool.report(entry, result)
        if len(result.text) > self.engine.run_spec.context.observation_chars:
            self.results[entry.key] = result

    async def _take_all(self, entries: Sequence[Entry]) -> tuple[Observation, ...]:
        """Admit several calls, carry them out, and settle their results."""
        engine, chain = self.engine, self.engine.chain
        begun = [engine.journal.find(entry.key) is not NOTHING for entry in entries]
        admitted: list[Admitted | None] = [None] * len(entries)
        results: list[Any] = [UNSET] * len(entries)
        """The result of each call; for one that waits, the `Suspend`."""
        seen: list[Observation] = []
        try:
            for i in sorted(range(len(entries)), key=lambda i: not begun[i]):
                if entries[i].key in self.background.begun:  # the act was interrupted by a question
                    results[i] = _describe_start(entries[i])
                    continue
                try:
                    admitted[i] = await engine.chain.admit(entries[i], self._tool)
                except Suspend as why:
                    results[i] = why
                except (LimitNear, LimitReached) as why:
                    if not any(begun):
                        raise  # nothing has started: the whole act gets the signal
                    admitted[i] = chain.refuse(entries[i], self._tool, f"The call is refused: {sentence(why.detail)}")
            for i, each in enumerate(admitted):
                if each is None or not self.background.takes(each.entry) or each.result is not UNSET:
                    continue
                if each.found.value is UNSET or each.found.has_begun:  # else it was refused
                    self.background.begin(each)
                    admitted[i], results[i] = None, _describe_start(each.entry)
            await self._carry_out(admitted, results)
            if waits := [each for each in results if isinstance(each, Suspend)]:
                raise Suspend(*(question for why in waits for question in why.questions))
            for i, each in enumerate(admitted):
                admitted[i] = None  # the chain itself tells or releases the guards of what it settles
                seen.append(results[i] if each is None else await chain.settle(each, results[i]))
            return tuple(seen)
        except BaseException:
            for each, result in zip(admitted, results, strict=True):
                if each is not None and (result is UNSET or isinstance(result, Suspend)):
                    each.release()
                elif each is not None:  # what goes on beside this act must know of it; a resumed run settles it
                    await each.tell(result)
            raise

    async def _carry_out(self, admitted: Sequence[Admitted | None], results: list[Any]) -> None:
        """Fill in the results. A call that waits leaves the others alone; an error cancels them."""
        engine = self.engine

        def report(entry: Entry, result: Observation) -> None:
            """Report a result at once, unless a guard may change it: then it is reported as the loop gets it."""
            if not any(guard.holds_result(entry, result) for guard in engine.chain.at(type(entry.effect)).after):
                self._tool.report(entry, result)

        todo: dict[int, Admitted] = {}
        for i, each in enumerate(admitted):
            if each is not None and each.result is UNSET and each.found.value is UNSET:
                todo[i] = each
            elif each is not None:
                results[i] = await engine.carry_out(each)
                report(each.entry, results[i])

        async def make(i: int, each: Admitted) -> None:
            try:
                results[i] = await engine.carry_out(each)
            except Suspend as why:
                results[i] = why
                return
            report(each.entry, results[i])

        if len(todo) == 1 or all(is_inline(each.entry.tool) for each in todo.values()):
            for i, each in todo.items():
                await make(i, each)
            return
        engine.journal.beside += len(todo)
        try:
            async with asyncio.TaskGroup() as tasks:
                for i, each in todo.items():
                    tasks.create_task(make(i, each))
        except BaseExceptionGroup as why:
            raise why.exceptions[0] from None
        finally:
            engine.journal.beside -= len(todo)

    def is_over_at_once(self, act: Act) -> bool:
        """Return whether its calls are over as soon as they begin: they are made on the event loop itself, and nobody
        is asked before."""
        tools = [self.engine.run_spec.tools.get(call.tool) for call in act.calls]
        is_quick = all(is_inline(each) and is_repeatable(each) for each in tools)
        asks = any(each is not None and each.requires_approval for each in tools)
        return is_quick and not asks and not any(self.engine.chain.may_ask(call) for call in act.calls[:1])


def _describe_start(entry: Entry) -> Observation:
    return Observation(STARTED.format(key=entry.key))
