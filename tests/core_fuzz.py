"""Random runs of the core, killed at random points and answered by other processes: for the tests and the campaign.

A seed draws the programs of a run and of its child runs, the policies, guards that decide at random, when processes
die, and what the user answers. `try_seed` takes the run to its end and raises `AssertionError` if a promise is broken:

- No effect is repeated. An effect with a result was made once, one in doubt at most once, any other never. Nothing is
  in doubt unless a process died.
- No effect is made without the approval that the policies ask for, and none that was refused.
- A signal does not take back what has begun, nobody reads what a guard hides, and no answer of a child is lost.
- No more requests are sent, and no more child runs begin, than the limits allow.
- Each `before` that returned, and each `restore`, is followed by exactly one `after` or `release` of the same process.
  Before a guard decides, it has been told what is on record.
- There is an open question whenever the run waits, and an answer that was given is not taken again.
- The replay of each run, without guards, ends as the run did.
- The events of a run that one process has performed show each result as it is on record.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

import plait
from core_fuzz_guards import Flaky, Hides, HookWhims, Spy, Whims
from core_programs import Programs
from core_runs import RUN, TOOLS, WORLD, Killed, Steps, Tried, agent_of, did, do, is_attempt
from plait.core import Call, Event, Observation
from plait.core.errors import BadAnswer, StaleAnswer
from plait.core.events import Observed
from plait.journal.keys import read_key
from plait.journal.records import IntentRecord, NoteRecord, RaisedRecord, ResultRecord

EFFECTS = ("pay", "post", "delegate")
"""The tools that must not be called twice."""


class Fuzzed:
    """The run of a seed."""

    def __init__(self, seed: int) -> None:
        WORLD.clear()
        chance = random.Random(seed)
        self.programs = Programs(chance)
        self.programs.add(RUN, 0)
        self.limits = plait.Limits(
            calls=chance.choice((None, None, 2, 4, 8)),
            children=chance.choice((0, 1, 3, 32, 32)),
            repeats=chance.choice((0, 4)),
            retries=1,
        )
        self.approve: Any = chance.choice(("never", "effects", "effects", "always"))
        self.taint: Any = chance.choice(("off", "ask"))
        self.whims = chance.choice((0.0, 0.0, 0.1, 0.3))
        self.failures = chance.choice((0.0, 0.0, 0.2))
        self.has_hook = chance.random() < 0.5
        self.deadly = chance.choice((0.0, 0.5, 0.9))
        self.chance = random.Random(seed + 1_000_003)
        """What differs from process to process."""
        self.sent: list[str] = []
        self.spies: list[Spy] = []
        self.wrong: list[str] = []
        """What the spies have found."""
        self.deaths = 0
        child = self._agent(_tools_below(self._agent(())))
        agent = self._agent(_tools_below(child), approve=self.approve, taint=self.taint, limits=self.limits)
        self.tried = Tried(lambda: agent, self.make_guards, pause=lambda: self.chance.choice((0, 0, 1, 2)))
        self.events: list[Event] = []
        self.tried.on_event = self.events.append

    def _agent(self, more: Sequence[Any], **settings: Any) -> plait.Agent[Any]:
        loop = Steps(self.programs.walk, asks=True)
        return agent_of(loop, Flaky(self.chance, self.failures, self.sent), (*TOOLS, *more), **settings)

    def make_guards(self) -> list[Any]:
        runs = self.tried.disk.runs
        records: Any = IntentRecord | ResultRecord
        recorded = [(run, each) for run in runs for each in self.tried.disk.records(run, records)]
        known = [(run, each.key) for run, each in recorded if each.work in ("call", "request", "child")]
        self.spies = [Spy("front", -1.0, known, self.wrong), Spy("end", 99.0, known, self.wrong)]
        whims = [Whims(self.chance, self.whims)] if self.whims else []
        return [*self.spies, Hides(), *whims, *([HookWhims(self.chance, self.whims / 2)] if self.has_hook else [])]

    def run(self) -> int:
        """Take the run to its end, and check it. Returns the number of processes."""
        number = 0
        while True:
            number += 1
            assert number < 60, "the run does not end"
            dies_at = self.chance.randint(1, 25) if self.chance.random() < self.deadly / (1 + number / 20) else None
            open_before = self.tried.questions
            which = self.chance.randrange(len(open_before)) if open_before else 0
            answer = self._answer(open_before[which]) if open_before else None
            try:
                run = self.tried.go(answer, which, dies_at=dies_at)
            except Killed:
                assert not self.wrong, self.wrong
                self.deaths += 1
                continue
            except BadAnswer:
                assert self.tried.questions == open_before, "an answer that does not fit has changed something"
                continue
            assert not self.wrong, self.wrong
            for spy in self.spies:
                assert not spy.held, f"{spy.name} still holds {spy.held} ({run.status})"
            questions = self.tried.questions
            assert questions or run.status != "waiting", "the run waits, and no question is open"
            if answer is not None:
                self._answer_again(open_before[which].question)
            if run.status == "crashed":  # a model has failed too often: another process may be luckier
                self.deaths += 1
                assert run.outcome.error == "ServerFailed", run.reason
            elif run.status != "waiting":
                self.check(run)
                if number == 1:
                    self._check_events()
                return number

    def _answer(self, question: Any) -> str | None:
        if question.kind != "approval":
            return self.chance.choice(("Ann", "Bob", None))
        answers: list[str | None] = ["yes"] * 6 + ["no, not this", "no", None]
        if question.call is not None and question.call.tool == "pay":
            amount = question.call.input["amount"]
            answers += [f'edit {{"amount": {amount}, "to": "Zoe"}}', 'edit {"amount": "much"}']
        return self.chance.choice(answers)

    def _answer_again(self, question: str) -> None:
        """An answer that arrives twice changes nothing."""
        if (
            any(each.question == question for each in self.tried.questions)
            or self.tried.disk.runs[RUN].status != "waiting"
        ):
            return
        before = self.tried.disk.copy()
        try:
            asyncio.run(self.tried.ago("yes", question))
        except StaleAnswer:
            assert {k: len(v.rows) for k, v in before.runs.items()} == {
                k: len(v.rows) for k, v in self.tried.disk.runs.items()
            }
            return
        raise AssertionError("an answer was taken twice")

    # -- what must hold at the end

    def check(self, run: Any) -> None:
        assert run.status in ("answered", "stopped", "failed"), f"{run.status}: {run.reason}"
        self._check_effects()
        self._check_limits()
        for name in self.tried.disk.runs:
            self._check_rows(name)
        assert "page p" not in repr((run.outcome, self.sent)), "a guard's decision was lost"
        for name, stored in self.tried.disk.runs.items():
            assert stored.outcome is not None or name != RUN
            if stored.status in ("answered", "stopped", "failed"):
                found = self.tried.replay(name)
                assert found.whole, f"the replay of {name} stops before its end"

    def _check_events(self) -> None:
        recorded = [(each.step, each.shown, each.seen) for each in self.tried.disk.timeline().tool_calls]
        for each in self.events:
            if isinstance(each, Observed):
                assert (each.step, each.call, each.observation) in recorded, f"on record is not {each}"

    def _check_effects(self) -> None:
        made = Counter(id for id, _ in WORLD)
        amounts = Counter(text.partition(" to ")[0] for text in did() if not text.startswith(("look", "page")))
        assert max(amounts.values(), default=0) <= 1, f"repeated: {amounts.most_common(3)}"
        approved: set[tuple[str, str, str]] = set()
        """Entries, by run and key, with inputs that the user has approved for them."""
        asked: dict[tuple[str, str], Any] = {}
        made_with: dict[tuple[str, str], Any] = {}
        results: dict[tuple[str, str], Observation] = {}
        tools: dict[tuple[str, str], str] = {}
        for run in self.tried.disk.runs:
            for each in self.tried.disk.records(run, ResultRecord | IntentRecord):  # type: ignore[arg-type]
                at = read_key(each.key)
                if each.work == "decision" and at.mark == "?" and at.guard == "approvals":
                    if isinstance(each, IntentRecord):
                        asked[run, each.key] = each.asked.call.input
                    elif each.value.action == "yes":
                        approved.add((run, at.owner, repr(asked[run, each.key])))
                    elif each.value.action == "edit":
                        approved.add((run, at.owner, repr(each.value.bound or each.value.value)))
                elif each.work == "call":
                    if isinstance(each, IntentRecord):
                        made_with[run, each.key] = each.asked.input if each.made is UNSET else each.made.call.input
                    if isinstance(each, ResultRecord):
                        assert (run, each.key) not in results, f"two results of {run} {each.key}"
                        results[run, each.key] = each.value
                    if isinstance(each.asked, Call):
                        tools[run, each.key] = each.asked.tool
        for id, result in results.items():
            if tools[id] not in EFFECTS:
                continue
            times = made[id]
            if result.trouble == "in_doubt":
                assert self.deaths, f"{id} is in doubt, and no process died"
                assert times <= 1, f"{id} is in doubt, and was done {times} times"
            elif result.trouble:
                assert times == 0, f"{id} is {result.trouble}, and was done"
            else:
                assert times == 1, f"{id} has a result, and was done {times} times"
        for run, stored in self.tried.disk.runs.items():
            caller = stored.head.caller
            id = (caller.run, caller.key.partition(":")[0]) if caller is not None else ("", "")
            if tools.get(id) == "helper" and id in results and stored.status == "answered":
                assert results[id].ok, f"{run} has answered, and its call {id} says {results[id].text}"
        for id in made:
            if tools.get(id) in EFFECTS and self.approve != "never":
                assert (*id, repr(made_with[id])) in approved, f"{id} was done, and {made_with[id]} not approved"

    def _check_rows(self, run: str) -> None:
        """Check signals, and that content from outside of earlier processes was known when an effect was admitted."""
        begun: set[int] = set()
        known: set[int] = set()
        new: set[int] = set()
        approved: set[str] = set()
        for each in self.tried.disk.records(run):
            if isinstance(each, NoteRecord):
                known |= new if each.kind == "resumed" else set()
                continue
            at = read_key(each.key)
            if isinstance(each, RaisedRecord):
                assert at.n not in begun, f"{run} {each.key} has begun, and got a {each.kind}"
            elif each.work == "decision":
                if at.guard == "approvals" and isinstance(each, ResultRecord) and each.value.action in ("yes", "edit"):
                    approved.add(at.owner)
            elif each.work == "call" and isinstance(each, IntentRecord):
                begun.add(at.n)
                follows = each.asked.tool in EFFECTS and repr(each.asked) not in self.programs.planned
                sources = known - {at.n} if self.taint == "ask" and follows else set()
                assert not sources or each.key in approved, f"{run} {each.key} was not approved after {sources}"
            elif each.work == "call" and each.value.outside:
                new.add(at.n)

    def _check_limits(self) -> None:
        keys = {(run, key) for run in self.tried.disk.runs for key in self.tried.disk.keys(run, IntentRecord)}
        requests = sum(is_attempt(key) for _, key in keys)
        most = self.limits.calls
        assert most is None or requests <= most, f"{requests} requests, with a limit of {most}"
        assert len(self.sent) <= requests, f"{len(self.sent)} sent, {requests} on record"
        children = len(self.tried.disk.runs) - 1
        assert children <= self.limits.children, f"{children} child runs, with a limit of {self.limits.children}"


def _tools_below(agent: plait.Agent[Any]) -> tuple[Any, ...]:
    @plait.tool
    async def delegate(ctx: plait.Context[Any], question: str) -> str:
        """Have it done, and note that."""
        run = await ctx.arun(agent, question)
        do(ctx, f"delegate {question}")
        return str(run.answer)

    return agent.as_tool("helper", "Have it done."), delegate


def try_seed(seed: int) -> int:
    """Take the run of a seed to its end. Returns the number of processes. Raises `AssertionError`."""
    return Fuzzed(seed).run()


def find_failures(seeds: Sequence[int], *, most: int = 1) -> list[str]:
    """Return what is wrong with the runs of some seeds, up to `most` failures."""
    found: list[str] = []
    for seed in seeds:
        try:
            try_seed(seed)
        except Exception as why:
            found.append(f"seed {seed}: {type(why).__name__}: {why}")
            if len(found) == most:
                break
    return found
